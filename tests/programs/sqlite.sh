# SPDX-License-Identifier: MIT
# sqlite3: a script from a pipe, output to a pipe, a shell of its own.
if [ "$1" = setup ]; then
	command -v sqlite3 >/dev/null || exit 77
	exit 0
fi
{
	echo "create table t(a integer primary key, b text);"
	echo "begin;"
	for i in $(seq 500); do echo "insert into t(b) values ('row $i');"; done
	echo "commit;"
	echo "select count(*), sum(a), max(b) from t;"
	echo ".shell echo from its shell"
	echo "select nosuch from t;"
} | sqlite3 test.db 2>/dev/null
echo "status $?"
sqlite3 test.db 'select b from t order by a desc limit 3; pragma integrity_check;' | cat
sqlite3 test.db .dump | wc -l
