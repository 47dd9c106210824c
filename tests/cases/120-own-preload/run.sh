# SPDX-License-Identifier: MIT
$CC -g -O1 -fPIC -shared -o "$OUT/own.so" own.c || exit 1
$CC -g -O1 -o "$OUT/prog" main.c -ldl || exit 1
$TRACER "$OUT/prog" "$OUT/own.so" || exit 1
# And with one in force from the start.
export LD_PRELOAD="$OUT/own.so"
exec $TRACER "$OUT/prog" "" child
