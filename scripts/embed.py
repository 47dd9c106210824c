#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes text files into a C file, one array after another: embed.py OUTPUT NAME FILE..."""
import os
import sys


def main():
    output, name, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by scripts/embed.py. */\n")
        out.write('#include "collector/value/shipped.h"\n\n')
        for number, path in enumerate(files):
            with open(path, "rb") as file:
                data = file.read()
            out.write(f"static const char text_{number}[] = {{\n")
            for at in range(0, len(data), 16):
                out.write("\t" + " ".join(f"{byte}," for byte in data[at:at + 16]) + "\n")
            out.write("};\n\n")
        out.write(f"const struct shipped_prototypes {name}[] = {{\n")
        for number, path in enumerate(files):
            out.write(f'\t{{"{os.path.basename(path)}", text_{number}, sizeof text_{number}}},\n')
        out.write("\t{0, 0, 0},\n};\n")


main()
