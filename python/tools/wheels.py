"""Build the wheels of all platforms into a folder, and look into each.

    python tools/wheels.py dist [PLATFORM…]
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

# What a program of each platform begins with, and where its machine is named.
PLATFORMS = {
    "linux/amd64": ("manylinux_2_17_x86_64", b"\x7fELF", 18, 62),
    "linux/arm64": ("manylinux_2_17_aarch64", b"\x7fELF", 18, 183),
    "darwin/amd64": ("macosx_12_0_x86_64", b"\xcf\xfa\xed\xfe", 4, 7),
    "darwin/arm64": ("macosx_12_0_arm64", b"\xcf\xfa\xed\xfe", 4, 12),
    "windows/amd64": ("win_amd64", b"MZ", None, None),
}


def build(platform: str, out: Path) -> Path:
    before = set(out.glob("*.whl"))
    env = dict(os.environ, TESTBED_PLATFORM=platform)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(HERE)], check=True, env=env, stdout=subprocess.DEVNULL)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def check(platform: str, wheel: Path) -> None:
    tag, magic, at, machine = PLATFORMS[platform]
    assert "-py3-none-" in wheel.name and tag in wheel.name, wheel.name
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        (program,) = [n for n in names if n.split("/")[-1] in ("testbed", "testbed.exe") and ".data/scripts/" in n]
        assert z.getinfo(program).external_attr >> 16 & 0o111, "the program is not executable"
        text = z.read(program)
        assert text[: len(magic)] == magic, "the program is of another system"
        if at is not None:
            assert int.from_bytes(text[at : at + 2], "little") == machine, "the program is of another machine"
        if platform.startswith("linux/"):
            assert b"ld-linux" not in text[:4096], "the program needs a C library, so that the tag is not true"
        assert "testbed/py.typed" in names and "testbed/__init__.py" in names
        assert not [n for n in names if n.startswith(("tests/", "examples/"))]


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if list(out.glob("*.whl")):
        sys.exit("%s has wheels already; name an empty folder" % out)
    wheels = []
    for platform in sys.argv[2:] or PLATFORMS:
        wheel = build(platform, out)
        check(platform, wheel)
        print("%-14s %s, %.1f MB" % (platform, wheel.name, wheel.stat().st_size / 1e6))
        wheels.append(str(wheel))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *wheels], check=True)


if __name__ == "__main__":
    main()
