#include "ucx_find.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "ucx_compat.h"

const char *const hws__ucx_lib_names[HWS__UCX_LIBS] = {"libucm", "libucs", "libuct", "libucp"};

/* ---- what is mapped ---- */

/* Which library a file is, or -1. Wheels that bundle UCX put a hash into the name
 * (libucp-1f2e3d4c.so.0.0.0); libucs_signal and the plugins (libuct_cma) are not meant. */
static int lib_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;

    for (int i = 0; i < HWS__UCX_LIBS; i++) {
        const size_t len = strlen(hws__ucx_lib_names[i]);

        if (strncmp(base, hws__ucx_lib_names[i], len) != 0)
            continue;
        const char *rest = base + len;
        if (*rest == '-') {
            rest++;
            rest += strspn(rest, "0123456789abcdef");
        }
        if (strncmp(rest, ".so", 3) == 0 && (rest[3] == '\0' || rest[3] == '.'))
            return i;
    }
    return -1;
}

static void folder_of(const char *path, char *dir)
{
    const char *slash = strrchr(path, '/');
    const size_t len = slash != NULL ? (size_t)(slash - path) : 0;

    memcpy(dir, path, len);
    dir[len] = '\0';
}

static int scan_one(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct hws__ucx_mapped *mapped = arg;
    const int i = info->dlpi_name != NULL ? lib_index(info->dlpi_name) : -1;
    char path[PATH_MAX], dir[PATH_MAX];

    (void)size;
    if (i < 0)
        return 0;
    /* A file that was replaced since it was mapped has no real path: keep what the loader says. */
    if (realpath(info->dlpi_name, path) == NULL)
        snprintf(path, sizeof(path), "%s", info->dlpi_name);
    folder_of(path, dir);
    if (mapped->dir[0] == '\0')
        memcpy(mapped->dir, dir, sizeof(dir));
    if (mapped->count[i]++ == 0)
        memcpy(mapped->path[i], path, sizeof(path));
    else
        memcpy(mapped->other, path, sizeof(path));
    if (strcmp(mapped->dir, dir) != 0)
        memcpy(mapped->other, path, sizeof(path));
    return 0;
}

int hws__ucx_scan(struct hws__ucx_mapped *mapped)
{
    int total = 0;

    memset(mapped, 0, sizeof(*mapped));
    dl_iterate_phdr(scan_one, mapped);
    for (int i = 0; i < HWS__UCX_LIBS; i++)
        total += mapped->count[i];
    return total;
}

/* ---- folders ---- */

/* Takes `dir` if it holds libucp.so.0; the answer is the folder of the real file, since that is
 * what the scan of the mapped objects is compared with. */
static int accept_dir(const char *dir, char *out)
{
    char file[PATH_MAX + 16], real[PATH_MAX];

    if (snprintf(file, sizeof(file), "%s/libucp.so.0", dir) >= (int)sizeof(file))
        return 0;
    if (realpath(file, real) == NULL)
        return 0;
    folder_of(real, out);
    return 1;
}

/* A path names the folder of the libraries, its parent (a prefix), or the library itself. */
static int accept_path(const char *path, char *out)
{
    static const char *const below[] = {"", "/lib", "/lib64"};
    char dir[PATH_MAX];

    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
        if (snprintf(dir, sizeof(dir), "%s%s", path, below[i]) < (int)sizeof(dir) &&
            accept_dir(dir, out))
            return 1;
    if (lib_index(path) != HWS__UCP || strlen(path) >= sizeof(dir))
        return 0;
    folder_of(path, dir);
    return accept_dir(dir[0] != '\0' ? dir : ".", out);
}

/* The folders the administrator gave to the dynamic linker: plain lines of the *.conf files. */
static int search_linker_conf(char *out)
{
    glob_t files;
    int found = 0;

    if (glob("/etc/ld.so.conf.d/*.conf", 0, NULL, &files) != 0)
        return 0;
    for (size_t i = 0; i < files.gl_pathc && !found; i++) {
        FILE *f = fopen(files.gl_pathv[i], "re");
        char line[PATH_MAX];

        while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
            line[strcspn(line, " \t\r\n#")] = '\0';
            found = line[0] == '/' && accept_dir(line, out);
        }
        if (f != NULL)
            fclose(f);
    }
    globfree(&files);
    return found;
}

/* LD_LIBRARY_PATH is not asked: it differs between the programs of a machine, and peers must load
 * the same version (HAWSER_UCX=PATH says it for one program). */
int hws__ucx_system_dir(char *dir)
{
    static const char *const dirs[] = {
#if defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
        "/usr/lib/aarch64-linux-gnu",
#endif
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/usr/local/lib64",
        "/opt/ucx/lib",
    };

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        if (accept_dir(dirs[i], dir))
            return 1;
    return search_linker_conf(dir);
}

int hws__rdma_present(void)
{
    DIR *dir = opendir("/sys/class/infiniband");
    const struct dirent *entry;
    int found = 0;

    if (dir == NULL)
        return 0;
    while (!found && (entry = readdir(dir)) != NULL)
        found = entry->d_name[0] != '.';
    closedir(dir);
    return found;
}

int hws__cuda_present(void)
{
    /* Linux, WSL 2, Jetson. */
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvmap"};
    void *loaded = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int found = loaded != NULL;

    if (loaded != NULL)
        dlclose(loaded);
    for (size_t i = 0; !found && i < sizeof(devices) / sizeof(devices[0]); i++)
        found = access(devices[i], F_OK) == 0;
    return found;
}

/* ---- the wheel ---- */

static int wheel_in_prefix(const char *prefix, char *out)
{
    static const char *const patterns[] = {
        "%s/lib/python3*/site-packages/libucx/lib",
        "%s/lib64/python3*/site-packages/libucx/lib",
        "%s/lib/python3*/dist-packages/libucx/lib",
        "%s/local/lib/python3*/dist-packages/libucx/lib",
    };
    char pattern[PATH_MAX];
    int found = 0;

    for (size_t i = 0; prefix[0] != '\0' && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        glob_t dirs;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        const int len = snprintf(pattern, sizeof(pattern), patterns[i], prefix);
#pragma GCC diagnostic pop
        if (len >= (int)sizeof(pattern) || glob(pattern, 0, NULL, &dirs) != 0)
            continue;
        for (size_t k = 0; k < dirs.gl_pathc && !found; k++)
            found = accept_dir(dirs.gl_pathv[k], out);
        globfree(&dirs);
        if (found)
            return 1;
    }
    return 0;
}

/* PREFIX/bin/python3 -> PREFIX; empty if the path has not that form. */
static void prefix_of_program(const char *program, char *prefix)
{
    char dir[PATH_MAX];

    folder_of(program, dir);
    folder_of(dir, prefix);
}

static int is_python(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash != NULL ? slash + 1 : path, "python", 6) == 0;
}

/* The name the process was started by: in a virtual environment it is PREFIX/bin/python, where
 * /proc/self/exe is already the interpreter of the system. */
static void program_name(char *name)
{
    FILE *f = fopen("/proc/self/cmdline", "re");
    const size_t got = f != NULL ? fread(name, 1, PATH_MAX - 1, f) : 0;

    name[got] = '\0';
    if (f != NULL)
        fclose(f);
}

/* SITE/hawser/lib/libhawser.so.0 -> SITE/libucx/lib. It does not depend on how Python was started, nor on
 * a title that replaced the command line. */
static int wheel_beside_us(char *out)
{
    char dir[PATH_MAX], up[PATH_MAX], beside[PATH_MAX + 16];
    Dl_info self;

    if (dladdr(hws__ucx_lib_names, &self) == 0 || realpath(self.dli_fname, dir) == NULL)
        return 0;
    for (int level = 0; level < 3; level++) {
        folder_of(dir, up);
        memcpy(dir, up, sizeof(dir));
    }
    snprintf(beside, sizeof(beside), "%s/libucx/lib", dir);
    return accept_dir(beside, out);
}

/* The first program of that name on PATH, where the shell found it. */
static int search_path(const char *name, char *program)
{
    const char *dirs = getenv("PATH");

    for (const char *dir = dirs; dir != NULL && *dir != '\0';) {
        const size_t len = strcspn(dir, ":");
        const int n = snprintf(program, PATH_MAX, "%.*s/%s", (int)len, dir, name);

        if (n < PATH_MAX && access(program, X_OK) == 0)
            return 1;
        dir += len + (dir[len] == ':');
    }
    return 0;
}

/* By the name that the process was started by, which may be relative to the folder it was started
 * in. */
static int wheel_of_program(char *out)
{
    char name[PATH_MAX], program[PATH_MAX], dir[PATH_MAX], bin[PATH_MAX], prefix[PATH_MAX];

    program_name(name);
    if (strchr(name, '/') != NULL)
        memcpy(program, name, sizeof(program));
    else if (!is_python(name) || !search_path(name, program))
        return 0;
    folder_of(program, dir);
    if (realpath(dir, bin) == NULL)
        return 0;
    folder_of(bin, prefix);
    return wheel_in_prefix(prefix, out);
}

static int wheel_of_python(char *out)
{
    char exe[PATH_MAX], prefix[PATH_MAX];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    exe[len > 0 ? len : 0] = '\0';
    if (!is_python(exe))
        return 0;
    if (wheel_beside_us(out) || wheel_of_program(out))
        return 1;
    const char *venv = getenv("VIRTUAL_ENV");
    if (venv != NULL && wheel_in_prefix(venv, out))
        return 1;
    prefix_of_program(exe, prefix);
    return wheel_in_prefix(prefix, out);
}

int hws__ucx_wheel_dir(char *dir)
{
    static const char *const names[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};

    if (wheel_of_python(dir))
        return 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *prefix = getenv(names[i]);

        if (prefix != NULL && wheel_in_prefix(prefix, dir))
            return 1;
    }
    return 0;
}

/* ---- the choice ---- */

static int32_t find_named(const char *choice, int origin, const char *by,
                          struct hws__ucx_found *found)
{
    int ok;

    if (strcmp(choice, "system") == 0)
        ok = hws__ucx_system_dir(found->dir);
    else if (strcmp(choice, "wheel") == 0)
        ok = hws__ucx_wheel_dir(found->dir);
    else
        ok = accept_path(choice, found->dir);
    if (!ok)
        return hws__fail(
            HWS_E_NO_UCX, 0, "no UCX (libucp.so.0) for '%s', chosen by %s%s", choice, by,
            strcmp(choice, "wheel") == 0 ? ": no active Python environment has libucx" : "");
    found->origin = origin;
    snprintf(found->why, sizeof(found->why), "chosen by %s: %.100s", by, choice);
    return 0;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* Reads the value of `ucx` from a file of `key = value` lines; `#` starts a comment. */
static int read_conf(const char *path, char *value, size_t cap)
{
    FILE *f = fopen(path, "re");
    char line[PATH_MAX + 64];
    int found = 0;

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        line[strcspn(line, "#\n")] = '\0';
        char *eq = strchr(line, '=');
        if (eq == NULL)
            continue;
        *eq = '\0';
        if (strcmp(trim(line), "ucx") != 0)
            continue;
        snprintf(value, cap, "%s", trim(eq + 1));
        found = value[0] != '\0';
    }
    fclose(f);
    return found;
}

/* The user's file, then the machine's. */
static int conf_choice(char *value, size_t cap, char *path, size_t path_cap)
{
    const char *home = getenv("HOME");

    if (home != NULL && home[0] == '/') {
        snprintf(path, path_cap, "%s/.config/hawser.conf", home);
        if (read_conf(path, value, cap))
            return 1;
    }
    snprintf(path, path_cap, "/etc/hawser.conf");
    return read_conf(path, value, cap);
}

static int32_t find_automatic(struct hws__ucx_found *found)
{
    char wheel[PATH_MAX];
    const int has_system = hws__ucx_system_dir(found->dir);
    const int has_wheel = hws__ucx_wheel_dir(wheel);
    const int rdma = hws__rdma_present();

    if (!has_system && !has_wheel)
        return hws__fail(HWS_E_NO_UCX, 0,
                         "no UCX: neither the system nor the Python environment has libucp.so.0; "
                         "install it or set HAWSER_UCX to its folder");
    if (has_system && (rdma || !has_wheel)) {
        found->origin = HWS__UCX_SYSTEM;
        snprintf(found->why, sizeof(found->why), "automatic: the system's copy, %s",
                 rdma ? "since this machine has RDMA devices" : "since no wheel was found");
        return 0;
    }
    memcpy(found->dir, wheel, sizeof(wheel));
    found->origin = HWS__UCX_WHEEL;
    snprintf(found->why, sizeof(found->why), "automatic: the wheel of the Python environment");
    return 0;
}

int32_t hws__ucx_find(const char *choice, struct hws__ucx_found *found)
{
    char value[PATH_MAX], path[PATH_MAX];
    const char *env = getenv("HAWSER_UCX");

    memset(found, 0, sizeof(*found));
    if (choice != NULL && choice[0] != '\0')
        return find_named(choice, HWS__UCX_OPTION, "the caller", found);
    if (env != NULL && env[0] != '\0')
        return find_named(env, HWS__UCX_ENV, "HAWSER_UCX", found);
    if (conf_choice(value, sizeof(value), path, sizeof(path)))
        return find_named(value, HWS__UCX_FILE, path, found);
    return find_automatic(found);
}
