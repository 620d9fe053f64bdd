# Start MongoDB as a replica set of one: without a replica set there are no transactions.
# With a login, the members of a set need a key to know one another. This one has no other, so any key will do.
set -euo pipefail
key=/data/configdb/key
rm -f "$key"
(umask 077 && head -c 756 /dev/urandom | base64 > "$key")
chown mongodb:mongodb "$key"
exec docker-entrypoint.sh mongod --replSet rs0 --bind_ip_all --keyFile "$key"
