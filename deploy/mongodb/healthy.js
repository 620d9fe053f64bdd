// Others reach the member by the name that stands here.
try {
  rs.status();
} catch (error) {
  if (error.codeName !== "NotYetInitialized") throw error;
  rs.initiate({ _id: "rs0", members: [{ _id: 0, host: "documentdb:27017" }] });
}
quit(db.hello().isWritablePrimary ? 0 : 1);
