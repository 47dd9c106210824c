# SPDX-License-Identifier: MIT
# bash: pipelines, process and command substitution, here documents, subshells, traps, jobs, coprocesses.
[ "$1" = setup ] && exit 0
seq 1000 | grep 7 | sort -n | tail -n 3 | tr '\n' ' '
echo "${PIPESTATUS[*]}"
yes | head -n 1000 | wc -l
echo "${PIPESTATUS[*]}"
diff <(seq 5) <(seq 6)
wc -c <<END
here is $(echo a document) of $((6 * 7))
END
(exit 5)
echo "subshell $?"
trap 'echo trapped' USR1
kill -USR1 $$
sleep 0.05 &
wait $!
echo "job $?"
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo "$line"
eval "exec ${COPROC[1]}>&-"
wait "$COPROC_PID" 2>/dev/null
for i in 1 2 3 4 5; do echo $i; done | while read -r n; do echo -n "$((n * n)) "; done
echo
(trap '' PIPE; yes 2>/dev/null) | head -n 1
nosuchcommand 2>/dev/null
echo "status $?"
bash -c 'kill -TERM $$'
echo "signal $?"
exec sh -c 'echo last; exit 6'
