/*
 * process_vm_readv() without a sanitizer's interceptor, which looks at the caller's iovec after the call. UCX 1.22 asks
 * whether it may read a peer by reading over that very iovec. Where the peer's stack is at the same place, in a fork or
 * without randomized addresses, the read succeeds: the interceptor then follows what was on that stack. Linked into all
 * programs that are built with a sanitizer.
 */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

__attribute__((visibility("default"), no_sanitize_thread)) ssize_t process_vm_readv(
    pid_t pid, const struct iovec *local, unsigned long local_count, const struct iovec *remote,
    unsigned long remote_count, unsigned long flags)
{
    return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}
