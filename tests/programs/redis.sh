# SPDX-License-Identifier: MIT
# redis-server with redis-benchmark and redis-cli, a background save by fork, and the end by SHUTDOWN.
port=${LORG_TEST_PORT:-17379}
if [ "$1" = setup ]; then
	command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null || exit 77
	exit 0
fi
redis-server --port "$port" --bind 127.0.0.1 --save '' --dir . --logfile server.log --io-threads 1 &
server=$!
for _ in $(seq 200); do
	redis-cli -p "$port" ping >/dev/null 2>&1 && break
	sleep 0.05
done
redis-cli -p "$port" ping
redis-benchmark -p "$port" -q -n 1500 -c 5 -t set,get,lpush >/dev/null
echo "benchmark $?"
redis-cli -p "$port" llen mylist
redis-cli -p "$port" set key value
redis-cli -p "$port" get key
redis-cli -p "$port" bgsave >/dev/null
for _ in $(seq 200); do
	[ "$(redis-cli -p "$port" info persistence | tr -d '\r' | sed -n 's/^rdb_bgsave_in_progress://p')" = 0 ] && break
	sleep 0.05
done
redis-cli -p "$port" shutdown nosave
wait "$server"
echo "server $?"
