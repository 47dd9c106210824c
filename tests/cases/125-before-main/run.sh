# SPDX-License-Identifier: MIT
# A preinit array is only allowed in an executable; no PIE keeps the ifunc simple.
$CC -g -O1 -o "$OUT/prog" main.c -pthread || exit 1
exec $TRACER "$OUT/prog"
