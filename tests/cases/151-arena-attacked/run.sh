#!/bin/sh
# SPDX-License-Identifier: MIT
"$CC" -g -O1 -Wall -Wextra -pthread main.c -o "$OUT/attacked" || exit 1
for attack in 0 1 2 3 4 5 6 7 8; do
	$TRACER "$OUT/attacked" $attack || echo "exit $?"
done
