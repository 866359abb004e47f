#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the compiler has made good machine code of the kernels of a fit.

    kernel_gates.py [--table] LIBRARY_OR_CUBIN

Reads the machine code of each architecture in a library with cuobjdump and nvdisasm (in the PATH,
a folder of CUDA_TOOLS, or next to nvcc).  It requires that
 - each kernel of a usual fit has few enough registers for four blocks on a multiprocessor
 - no registers are spilled to local memory in an innermost loop over pixels, if the loop loads
   from GPU memory or uses tensor cores
 - the inner loops of LOOPS have enough loads under way at once.  An instruction that reads a
   loaded number waits for that load and all earlier ones
 - no function is empty; the compiler empties a function if it believes that it never runs
With --table it prints what it found as Markdown.  It ends with 77 if the tools are missing."""
import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

MOST_REGISTERS = 128  # 65,536 of a multiprocessor, four blocks of 128 threads
USUAL = ("answer_arm_f32", "star_start", "round_digest", "front", "last_input", "activate",
         "round_begin", "round_list")
PIXELS = ("answer_arm_f32", "star_start")  # the kernels that loop over pixels
# function, an instruction of its inner loop, the least number of loads under way in that loop
LOOPS = (("mill_sums_of", "DMMA", 7), ("mill_weights_of", "DFMA", 10),
         ("mill_block_sample", "FFMA", 16), ("mill_block_interpolate", "FFMA", 16),
         ("mill_block_locate", "DFMA", 4), ("mill_block_flux_tangent", "FMUL", 8),
         ("mill_block_rotate", "FFMA", 6), ("mill_resolve_tile", "FFMA", 8))
KEPT_LOCAL = ("mill_error_pairs", "mill_block_whiten_error", "mill_rotation_weight",
              "mill_block_sum_n")  # small arrays, once a star or once a request
LOADS = {"LD": 1, "LDG": 1}
# of nvdisasm's listing
SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
LABEL = re.compile(r"\s*(\.L_x_\d+|\$?_Z[^\s:]+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_.]*)(.*?);")
TARGET, REGISTER = re.compile(r"\.L_x_\d+"), re.compile(r"\bR(\d+)\b")


def tool(name):
    beside = [os.path.dirname(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"),
              "/usr/local/cuda/bin"]
    for folder in [*glob.glob(os.path.join(os.environ.get("CUDA_TOOLS", "/nowhere"), "**/bin"),
                              recursive=True), *beside]:
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    found = shutil.which(name)
    if not found:
        print(f"SKIPPED: no {name}; it comes with CUDA's toolkit, or from PyPI as nvidia-cuda-{name}")
        sys.exit(77)
    return found


def output_of(*command, cwd=None):
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


class Source:
    """Names of the functions that lines of source files lie in."""
    BEGIN = re.compile(r"\b(mill_\w+|[a-z]\w+)\s*\((?!.*;)")

    def __init__(self):
        self.of = {}

    def function(self, path, line):
        if path not in self.of:
            names, name = [""], ""
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    lines = file.read().split("\n")
            except OSError:
                lines = []
            starts = {}
            for i, text in enumerate(lines):
                if text == "{":  # the lines above, up to an empty line, are the function's head
                    j = i - 1
                    while j > 0 and lines[j] and not lines[j].rstrip().endswith(("*/", "}", ";")):
                        j -= 1
                    head = " ".join(lines[j + 1:i])
                    head = re.sub(r"__launch_bounds__\([^)]*\)|__align__\(\d+\)", "", head)
                    found = [a for a in self.BEGIN.findall(head) if a != "inline"]
                    if found:
                        starts[j + 1] = found[0]
            for i in range(len(lines)):
                name = starts.get(i, name)
                names.append(name)
            self.of[path] = names
        names = self.of[path]
        return names[line] if line < len(names) else ""


class Loop:
    def __init__(self, section, body):
        self.section = section
        self.count = collections.Counter(op.split(".")[0] for op, _, _ in body)
        seen = collections.Counter()
        for _, _, functions in body:
            seen.update(functions)
        self.functions = {f for f, n in seen.items() if n > len(body) / 2}
        self.size = len(body)
        waiting, self.under_way = [], 0
        for op, registers, _ in body:
            for k, (low, high) in enumerate(waiting):
                if any(low <= r <= high for r in registers):
                    waiting = waiting[k + 1:]
                    break
            if op.split(".")[0] in LOADS and registers:
                width = 4 if ".128" in op else 2 if ".64" in op else 1
                waiting.append((registers[0], registers[0] + width - 1))
                self.under_way = max(self.under_way, len(waiting))

    @property
    def is_of_many(self):
        """Whether the loop serves more than 12 continuum functions; no survey has so many."""
        return "mill_weights_of" in self.functions and self.count["DFMA"] > 200

    @property
    def local(self):
        return self.count["LDL"] + self.count["STL"]


def sections(text, source):
    """(kernel, instructions [op, registers, functions], labels) of nvdisasm's listing."""
    name, code, labels, chain, fresh = None, [], {}, (), True
    for line in text.split("\n"):
        found = SECTION.match(line)
        if found:
            if name:
                yield name, code, labels
            name, code, labels, chain = found.group(1), [], {}, ()
            continue
        found = LINE.search(line)
        if found:
            if fresh:
                chain = ()
            fresh = False
            chain += (source.function(found.group(1), int(found.group(2))),)
            continue
        found = LABEL.match(line)
        if found:
            labels[found.group(1)] = len(code)
            continue
        found = INSTRUCTION.search(line)
        if found:
            fresh = True
            guard, op, rest = found.groups()
            target = TARGET.search(rest)
            if guard and op.startswith(("RET", "EXIT")):
                op = "@" + op  # it may go on
            code.append((op, [int(r) for r in REGISTER.findall(rest)], frozenset(chain),
                         target.group(0) if target else None))
    if name:
        yield name, code, labels


def empty_functions(code, labels):
    """Functions called by a kernel that do nothing but return."""
    begins = sorted((at, name) for name, at in labels.items() if "$_Z" in name)
    for k, (begin, name) in enumerate(begins):
        end = begins[k + 1][0] if k + 1 < len(begins) else len(code)
        ends = [i for i in range(begin, end)
                if code[i][0].lstrip("@").startswith(("RET", "EXIT", "BPT"))]
        sure = [i for i in ends if not code[i][0].startswith("@")]  # a loop may end by a guarded one
        if not ends or (sure and sure[0] - begin < 4):
            yield name.rsplit("$", 1)[-1]


def inner_loops(section, code, labels):
    jumps = [(labels[target], i) for i, (op, _, _, target) in enumerate(code)
             if op.startswith("BRA") and target in labels and labels[target] <= i]
    for begin, end in jumps:
        if not any((b, e) != (begin, end) and b >= begin and e <= end for b, e in jumps):
            yield Loop(section, [one[:3] for one in code[begin:end + 1]])


def kernel_name(mangled):
    found = re.match(r"_Z\d+([a-z]\w*?)(ILi(\d+)E|I([fd])E)?(?=E?[vi1P])", mangled)
    plain = re.sub(r"^_Z(\d+)(.*)$", lambda m: m.group(2)[:int(m.group(1))], mangled)
    number = re.search(r"ILi(\d+)E", mangled)
    return f"{plain}<{number.group(1)}>" if found and number else plain


def study(path, resources, disassembler, source):
    """The loops of a file of machine code; registers, stack and shared memory of its kernels."""
    kernels, loops, empty = {}, [], []
    for name, line in re.findall(r"Function (\S+):\s*\n\s*(REG:.*)", output_of(resources, "-res-usage", path)):
        use = {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", line)}
        kernels[kernel_name(name)] = (use["REG"], use["STACK"], use["SHARED"])
    if not kernels:  # only nvdisasm's start, 0.7 s
        return kernels, loops, empty
    for section, code, labels in sections(output_of(disassembler, "-gi", "-c", path), source):
        loops += inner_loops(kernel_name(section), code, labels)
        empty += empty_functions(code, labels)
    return kernels, loops, empty


def loop_of(loops, function, op):
    """Return a function's inner loop that contains the instruction op, or None.  If
    unrolling leaves several, take the loop with the most loads under way or, for tensor cores
    (DMMA), the loop with the fewest."""
    mine = [loop for loop in loops if function in loop.functions and loop.count[op]
            and loop.count["LDG"] + loop.count["LD"] and loop.section == "answer_arm_f32"
            and (op != "DMMA" or loop.count["LDG"]) and not loop.is_of_many]
    best = min if op == "DMMA" else max
    return best(mine, key=lambda one: one.under_way) if mine else None


def judge(kernels, loops):
    wrong = [f"no kernel {name} was found" for name in USUAL if name not in kernels]
    wrong += [f"kernel {name} has {kernels[name][0]} registers, {MOST_REGISTERS} are possible"
              for name in USUAL if name in kernels and kernels[name][0] > MOST_REGISTERS]
    wrong += [f"a loop of {'/'.join(sorted(loop.functions))} in {loop.section} keeps numbers in "
              f"local memory ({loop.local} instructions)"
              for loop in loops if loop.section in PIXELS and loop.local
              and (loop.count["LDG"] or loop.count["DMMA"])
              and not loop.functions & set(KEPT_LOCAL) and not loop.is_of_many]
    for function, op, least in LOOPS:
        loop = loop_of(loops, function, op)
        if not loop:
            wrong.append(f"no inner loop of {function} was found")
        elif loop.under_way < least:
            wrong.append(f"the inner loop of {function} has {loop.under_way} loads under way, "
                         f"not {least}")
    return wrong


def table(arch, kernels, loops):
    print(f"{arch}\n\n| kernel | registers | stack, bytes | shared memory, bytes |\n|---|---|---|---|")
    for name in sorted(kernels):
        print("| `{}` | {} | {} | {} |".format(name, *kernels[name]))
    print("\n| inner loop of `answer_arm_f32` | instructions | loads | of them generic | under way | "
          "local |\n|---|---|---|---|---|---|")
    for function, op, _ in LOOPS:
        loop = loop_of(loops, function, op)
        if loop:
            print(f"| `{function}` | {loop.size} | {loop.count['LD'] + loop.count['LDG']} | "
                  f"{loop.count['LD']} | {loop.under_way} | {loop.local} |")
    print()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true")
    parser.add_argument("path")
    args = parser.parse_args()
    resources, disassembler = tool("cuobjdump"), tool("nvdisasm")
    source, wrong, n_seen = Source(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        if args.path.endswith(".cubin"):
            cubins = [os.path.abspath(args.path)]
        else:
            output_of(resources, "--extract-elf", "all", os.path.abspath(args.path), cwd=folder)
            cubins = sorted(glob.glob(os.path.join(folder, "*.cubin")))
        by_arch = collections.defaultdict(lambda: ({}, []))
        for path in cubins:
            arch = (re.findall(r"sm_\w+?(?=\.)", os.path.basename(path)) or ["cubin"])[-1]
            kernels, loops, empty = study(path, resources, disassembler, source)
            wrong += [f"{arch}: function {name} does nothing" for name in empty]
            by_arch[arch][0].update(kernels)
            by_arch[arch][1].extend(loops)
        for arch, (kernels, loops) in sorted(by_arch.items()):
            if "answer_arm_f32" not in kernels:
                wrong.append(f"{arch}: no kernel answer_arm_f32")
                continue
            n_seen += 1
            if args.table:
                table(arch, kernels, loops)
            wrong += [f"{arch}: {text}" for text in judge(kernels, loops)]
    for text in wrong:
        print(text)
    if not n_seen:
        print(f"no machine code of the kernels in {args.path}")
    return 1 if wrong or not n_seen else 0


if __name__ == "__main__":
    sys.exit(main())
