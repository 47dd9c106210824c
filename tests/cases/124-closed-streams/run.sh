# SPDX-License-Identifier: MIT
$CC -g -O1 -o "$OUT/prog" main.c || exit 1
rm -f "$OUT/said"
$TRACER "$OUT/prog" "$OUT/said" <&- >&- 2>&-
status=$?
cat "$OUT/said"
exit $status
