#!/usr/bin/env python3
"""Makes the wheel of hawser-ucx for manylinux_2_28, with libsodium in it: wheel.py FOLDER [--machine aarch64].

No image is needed: zig's clang links against glibc 2.28 whatever the system has, also for the other machine. auditwheel
refuses what needs more. The tools come from PyPI, once, into build/wheel; of the system only Python is used.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheel"
TOOLS = WORK / "tools"
REQUIREMENTS = ROOT / "scripts" / "requirements-wheel.txt"
GLIBC = "2.28"
PYNACL = "1.6.2"


def run(*words: object, **kwargs: object) -> None:
    subprocess.run([str(word) for word in words], check=True, **kwargs)  # type: ignore[call-overload]


def tools() -> None:
    """The environment of REQUIREMENTS; the stamp holds what it was made from."""
    stamp = TOOLS / "hawser-stamp"
    wanted = f"{REQUIREMENTS.read_text()}{PYNACL} {sys.version}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    venv.create(TOOLS, clear=True, with_pip=True)
    pip = [TOOLS / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "-r", REQUIREMENTS)
    download = [*pip, "download", "--no-deps", "-d", WORK / "files"]
    run(*download, "--no-binary", "pynacl", "--no-build-isolation", f"pynacl=={PYNACL}")
    # For who installs the wheel in an empty environment without asking anybody.
    run(*download, "-c", REQUIREMENTS, "libucx-cu12")
    stamp.write_text(wanted)


def compiler(machine: str, folder: Path) -> dict[str, str]:
    """Programs that stand for gcc's; variables of the environment that name them."""
    target = f"-target {machine}-linux-gnu.{GLIBC}"
    programs = {"CC": f"cc {target}", "AR": "ar", "RANLIB": "ranlib"}
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, PATH=f"{TOOLS / 'bin'}:{os.environ['PATH']}")
    # The one who builds may have flags for a compiler of this machine.
    for name in ("CFLAGS", "LDFLAGS", "CPPFLAGS", "CMAKE_C_COMPILER_LAUNCHER"):
        environment.pop(name, None)
    python = shlex.quote(str(TOOLS / "bin" / "python"))
    for variable, command in programs.items():
        program = folder / variable.lower()
        program.write_text(f'#!/bin/sh\nexec {python} -m ziglang {command} "$@"\n')
        program.chmod(0o755)
        environment[variable] = str(program)
    return environment


def sodium(machine: str, folder: Path, environment: dict[str, str]) -> Path:
    """A static libsodium; the folder of its .pc file."""
    installed = folder / "sodium"
    if not (installed / "lib" / "pkgconfig" / "libsodium.pc").exists():
        shutil.rmtree(folder / "pynacl", ignore_errors=True)
        with tarfile.open(WORK / "files" / f"pynacl-{PYNACL}.tar.gz") as archive:
            archive.extractall(folder / "pynacl", filter="data")
        source = folder / "pynacl" / f"pynacl-{PYNACL}" / "src" / "libsodium"
        options = ["--disable-shared", "--enable-static", "--with-pic", "--disable-dependency-tracking"]
        with (folder / "sodium.log").open("w") as log:
            said = {"cwd": source, "env": environment, "stdout": log, "stderr": log}
            run("sh", "configure", f"--prefix={installed}", f"--host={machine}-linux-gnu", *options, **said)
            run("make", f"-j{os.cpu_count()}", "install", **said)
    return installed / "lib" / "pkgconfig"


def ucx_headers(folder: Path) -> Path:
    """UCX's headers alone: beside the system's stand those of the system's glibc."""
    (wheel,) = TOOLS.glob("lib/python3*/site-packages/libucx/include")
    found = Path("/usr/include")
    if not (found / "ucp" / "api" / "ucp.h").exists():
        found = wheel
    shutil.rmtree(folder / "include", ignore_errors=True)
    for part in ("ucm", "ucp", "ucs", "uct"):
        if (found / part).exists():
            shutil.copytree(found / part, folder / "include" / part)
    return folder / "include"


def build(sdist: str, machine: str, folder: Path, out: Path) -> Path:
    environment = compiler(machine, folder / "bin")
    environment["PKG_CONFIG_LIBDIR"] = str(sodium(machine, folder, environment))
    environment["_PYTHON_HOST_PLATFORM"] = f"linux-{machine}"
    defines = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine,
        "CMAKE_AR": environment["AR"],
        "CMAKE_RANLIB": environment["RANLIB"],
        # Without them zig's clang leaves its debug information in.
        "CMAKE_SHARED_LINKER_FLAGS": "-s",
        "CMAKE_MODULE_LINKER_FLAGS": "-s",
        "HAWSER_WITH_SODIUM": "ON",
        "HAWSER_UCX_INCLUDE": str(ucx_headers(folder)),
    }
    if machine != platform.machine():
        # It cannot be asked; the stable ABI's headers are the same on every 64-bit Linux.
        defines["Python_EXECUTABLE"] = sys.executable
    plain = folder / "plain"
    shutil.rmtree(plain, ignore_errors=True)
    pip = [TOOLS / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-index"]
    pip += ["--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", plain]
    run(
        *pip,
        *(f"--config-settings=cmake.define.{name}={value}" for name, value in defines.items()),
        sdist,
        env=environment,
    )
    (wheel,) = plain.glob("*.whl")
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    # It takes the names of this machine's tags only; for another it finds the tag itself.
    asked = tag if machine == platform.machine() else "auto"
    run(TOOLS / "bin" / "auditwheel", "repair", "--plat", asked, "--only-plat", "-w", out, wheel, env=environment)
    made = out / wheel.name.replace(f"linux_{machine}", tag)
    if not made.exists():
        sys.exit(f"{wheel} did not become {made.name}: it needs another glibc")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", choices=["x86_64", "aarch64"], default=platform.machine())
    arguments = parser.parse_args()
    out = arguments.folder.resolve()
    folder = WORK / arguments.machine
    tools()
    said = subprocess.run(
        [TOOLS / "bin" / "python", ROOT / "scripts" / "sdist.py", str(folder)], check=True, stdout=subprocess.PIPE
    )
    sdist = said.stdout.decode().splitlines()[-1]
    print(build(sdist, arguments.machine, folder, out))


if __name__ == "__main__":
    main()
