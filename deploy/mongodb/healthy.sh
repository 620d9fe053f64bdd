# Healthy is who can be written to. The first time, that takes a replica set to be made.
exec mongosh --quiet --username "$MONGO_INITDB_ROOT_USERNAME" --password "$MONGO_INITDB_ROOT_PASSWORD" \
  --authenticationDatabase admin --file /etc/headway/healthy.js
