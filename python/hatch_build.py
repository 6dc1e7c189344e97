"""Builds the program testbed with Go, and puts it into the wheel.

The platform is this machine's, or that of the environment variable TESTBED_PLATFORM:
linux/amd64, linux/arm64, darwin/amd64, darwin/arm64 or windows/amd64.
"""

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The program is static: it needs no C library, of whatever version. What macOS needs
# is what Go does.
TAGS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
    "windows/amd64": "win_amd64",
}


def here() -> str:
    system = {"Linux": "linux", "Darwin": "darwin", "Windows": "windows"}.get(platform.system(), platform.system().lower())
    machine = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return system + "/" + machine


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        target = os.environ.get("TESTBED_PLATFORM") or here()
        if target not in TAGS:
            raise SystemExit("testbed cannot be built for %s; set TESTBED_PLATFORM to one of %s" % (target, ", ".join(TAGS)))
        module = Path(self.root).parent
        if not (module / "go.mod").exists():
            raise SystemExit("the wheel can only be built in a checkout of testbed: there is no go.mod in %s" % module)
        if shutil.which("go") is None:
            raise SystemExit("building the program testbed needs Go; install Go (https://go.dev/dl), or run pip install diloco-testbed")
        system, machine = target.split("/")
        name = "testbed.exe" if system == "windows" else "testbed"
        self.folder = tempfile.mkdtemp(prefix="testbed-wheel-")
        out = Path(self.folder) / name
        env = dict(os.environ, GOOS=system, GOARCH=machine, CGO_ENABLED="0")
        subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(out), "./cmd/testbed"], cwd=module, env=env, check=True)
        build_data["shared_scripts"][str(out)] = name
        build_data["tag"] = "py3-none-" + TAGS[target]
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: Dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
