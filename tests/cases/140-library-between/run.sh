$CC -g -O1 -fPIC -shared -o "$OUT/libbetween.so" between.c && $CC -g -O1 -o "$OUT/prog" main.c -L"$OUT" -lbetween -Wl,-rpath,"$OUT" -pthread || exit 99
$TRACER "$OUT/prog"
