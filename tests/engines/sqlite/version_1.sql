-- The tables of version 1, as files in the world have them, with something in each that matters.
create table headway_items (
    id integer primary key,
    queue text not null,
    place text not null default 'ready',
    due real not null,
    token text,
    taking integer,
    returns integer not null default 0,
    begins integer not null default 0,
    begun integer not null default 0,
    operation text not null,
    generation text not null,
    failures integer not null,
    not_yet integer not null,
    first_seen real,
    parked_seconds real not null,
    parked_since real,
    requeues integer not null,
    history text,
    body
);
create index headway_items_free on headway_items (queue, due) where token is null;
create index headway_items_taken on headway_items (token) where token is not null;
create index headway_items_again on headway_items (operation, queue) where generation <> '0';
create table headway_queues (name text primary key, failed text not null) without rowid;
create table headway_bindings (
    event_type text not null, queue text not null, primary key (event_type, queue)
) without rowid;
create table headway_accepted (
    queue text not null, operation text not null, at real not null,
    primary key (queue, operation)
) without rowid;
create table headway_done (
    id integer primary key,
    key text not null unique,
    operation text not null,
    queue text not null,
    generation text not null,
    ended text not null,
    at real not null,
    letter text,
    failed_queue text not null default '',
    held text
);
create index headway_done_at on headway_done (at);
create index headway_done_held on headway_done (at) where held is not null;
create index headway_done_letter on headway_done (letter) where letter is not null;
create index headway_done_again on headway_done (operation, queue) where generation <> '0';
create table headway_forgotten (
    only integer primary key check (only = 1), done integer not null, purged integer not null
);
insert into headway_forgotten values (1, 0, 0);
create table headway_failed_queues (name text primary key) without rowid;
create table headway_letters (
    id integer primary key autoincrement,
    queue text not null,
    letter_id text not null,
    operation text not null,
    generation text not null,
    source_queue text not null,
    written real not null,
    body text not null,
    unique (queue, letter_id)
);
create index headway_letters_queue on headway_letters (queue);
create index headway_letters_operation on headway_letters (operation, source_queue);
create table headway_documents (
    number integer primary key,
    collection text not null,
    id text not null,
    body text not null,
    unique (collection, id)
);
create table headway_workers (
    token text primary key,
    machine text not null,
    namespace text not null,
    pid integer not null,
    started text not null,
    beat integer not null default 0,
    since real not null
) without rowid;
insert into headway_queues values ('q', 'q.failed');
insert into headway_bindings values ('A', 'q');
insert into headway_failed_queues values ('q.failed');
insert into headway_accepted values ('q', 'waits', 1700000000), ('q', 'ended', 1700000000);
insert into headway_items (queue, due, operation, generation, failures, not_yet, parked_seconds, requeues, body)
values ('q', 1700000000, 'waits', '0', 0, 0, 0, 0, '{"event_type":"A"}');
insert into headway_done (key, operation, queue, generation, ended, at)
values ('k', 'ended', 'q', '0', 'done', 1700000000);
insert into headway_documents (collection, id, body)
values ('docs', 'one', '{"_id":"one","status":"failed"}'), ('docs', 'broken', 'not JSON');
pragma application_id = 1214543737;
pragma user_version = 1;
