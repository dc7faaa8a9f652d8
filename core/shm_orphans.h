/*
 * Segments of UCX in /dev/shm whose process was killed.
 */
#ifndef HWS_CORE_SHM_ORPHANS_H
#define HWS_CORE_SHM_ORPHANS_H

/**
 * Unlinks the segments of this user that no process has open or mapped, on this kernel, in whatever
 * container: UCX gives a segment its name, maps it and takes the name away again, and a process
 * that is killed in between leaves it for good.
 * @return how many
 */
int hws__shm_orphans_remove(const char *folder);

#endif
