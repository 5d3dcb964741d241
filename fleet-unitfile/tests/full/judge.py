"""Asks the library of systemd 252 about unit files.

Each line of the input is the name of a unit, a tab, and the text of its file in hexadecimal digits.
Each line of the output is the result of reading that file, which is negative if systemd refuses
the unit, followed by the numbers of the lines about which systemd complains.

The functions are those that the service manager itself calls. They are not part of a stable
interface, so this works with exactly this version.
"""

import ctypes
import os
import re
import sys
import tempfile

FOLDER = "/usr/lib/x86_64-linux-gnu/systemd"
# Sections that are read besides [Unit] and [Install], by unit type.
OWN_SECTION = {
    name: name.capitalize()
    for name in ("service", "socket", "timer", "path", "mount", "automount", "swap", "slice")
}
TEST_RUN_MINIMAL = 1
PARSE_WARN = 2
# More than any unit type needs.
UNIT_SIZE = 16384
LOG_WARNING = 4
TO_CONSOLE = 0


class Judge:
    """A service manager that runs no unit, and the log of what it says."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "unit")
        self.log = os.open(os.path.join(folder, "log"), os.O_RDWR | os.O_CREAT)
        os.environ["XDG_RUNTIME_DIR"] = folder
        load = lambda name: ctypes.CDLL(f"{FOLDER}/libsystemd-{name}-252.so", mode=ctypes.RTLD_GLOBAL)
        self.shared, self.core = load("shared"), load("core")
        self.shared.log_set_target(TO_CONSOLE)
        self.shared.log_set_max_level(LOG_WARNING)
        self.lookup = ctypes.cast(self.shared.config_item_perf_lookup, ctypes.c_void_p)
        self.table = ctypes.cast(self.core.load_fragment_gperf_lookup, ctypes.c_void_p)
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        self.shared.config_parse.argtypes = [
            text, text, pointer, text, pointer, pointer, number, pointer, pointer
        ]
        self.core.unit_new.argtypes, self.core.unit_new.restype = [pointer, ctypes.c_size_t], pointer
        self.core.unit_add_name.argtypes = [pointer, text]
        self.core.unit_free.argtypes, self.core.unit_free.restype = [pointer], pointer
        self.manager = pointer()
        if self.core.manager_new(0, TEST_RUN_MINIMAL, ctypes.byref(self.manager)) < 0:
            sys.exit("judge.py: no service manager")

    def read(self, name, source):
        """Returns the result of reading a file, and the lines with a complaint."""
        with open(self.path, "wb") as file:
            file.write(source)
        unit = self.core.unit_new(self.manager, UNIT_SIZE)
        if self.core.unit_add_name(unit, name.encode()) < 0:
            sys.exit(f"judge.py: systemd refuses the name {name}")
        own = OWN_SECTION[name.rsplit(".", 1)[1]]
        sections = f"Unit\0{own}\0Install\0".encode()
        os.ftruncate(self.log, 0)
        os.lseek(self.log, 0, os.SEEK_SET)
        console = os.dup(2)
        os.dup2(self.log, 2)
        result = self.shared.config_parse(
            name.encode(), self.path.encode(), None, sections, self.lookup, self.table,
            PARSE_WARN, unit, None,
        )
        os.dup2(console, 2)
        os.close(console)
        self.core.unit_free(unit)
        os.lseek(self.log, 0, os.SEEK_SET)
        said = os.read(self.log, 1 << 24).decode("utf-8", "replace")
        place = re.compile(r"(?:^|\s)\S*" + re.escape(self.path) + r":(\d+): (?!Failed to parse file)")
        return result, sorted({int(line) for line in place.findall(said)})


def main():
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(folder)
        for line in sys.stdin:
            name, source = line.rstrip("\n").split("\t")
            result, lines = judge.read(name, bytes.fromhex(source))
            print(result, *lines, flush=True)


if __name__ == "__main__":
    main()
