# SPDX-License-Identifier: MIT
# nginx: a master and two workers, loaded by ab; ended by SIGQUIT.
port=${LORG_TEST_PORT:-17380}
if [ "$1" = setup ]; then
	command -v nginx >/dev/null && command -v ab >/dev/null || exit 77
	mkdir -p html
	seq 3000 >html/file.txt
	echo hello >html/index.html
	chmod 755 . html
	cat >nginx.conf <<-END
		daemon off;
		master_process on;
		worker_processes 2;
		pid $PWD/nginx.pid;
		error_log $PWD/error.log;
		events { worker_connections 64; }
		http {
			access_log $PWD/access.log;
			client_body_temp_path $PWD/body;
			proxy_temp_path $PWD/proxy;
			fastcgi_temp_path $PWD/fastcgi;
			uwsgi_temp_path $PWD/uwsgi;
			scgi_temp_path $PWD/scgi;
			sendfile on;
			server {
				listen 127.0.0.1:$port;
				root $PWD/html;
			}
		}
	END
	exit 0
fi
nginx -c "$PWD/nginx.conf" -e "$PWD/error.log" &
server=$!
for _ in $(seq 200); do
	[ -s nginx.pid ] && (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
	sleep 0.05
done
ab -q -n 400 -c 4 "http://127.0.0.1:$port/" | grep -E 'Complete requests|Failed requests|HTML transferred'
ab -q -k -n 200 -c 2 "http://127.0.0.1:$port/file.txt" | grep -E 'Complete requests|Failed requests|HTML transferred'
kill -QUIT "$server"
wait "$server"
echo "server $?, $(wc -l <access.log) requests"
