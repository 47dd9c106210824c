# SPDX-License-Identifier: MIT
$CC -g -O1 -rdynamic -o "$OUT/prog" main.c -pthread -ldl || exit 1
exec $TRACER "$OUT/prog"
