# SPDX-License-Identifier: MIT
$CC -g -O1 -fPIC -shared -Wl,-Bsymbolic -o "$OUT/plug.so" plug.c || exit 1
$CC -g -O1 -o "$OUT/prog" main.c -pthread -ldl || exit 1
exec $TRACER "$OUT/prog" "$OUT/plug.so"
