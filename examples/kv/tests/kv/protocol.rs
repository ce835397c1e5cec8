//! Tests of requests and their replies.

use std::time::{Duration, Instant};

use crate::connection::{Connection, formatted};
use crate::server::{Gateway, Store};

/// Sends requests one after the other, and checks their replies.
fn answers(client: &mut Connection, script: &[(&str, &str)]) {
    for (request, expected) in script {
        assert_eq!(client.ask(request), *expected, "{request}");
    }
}

/// Checks the basic requests. A gateway with its own store must reply as a cluster does.
fn basics(client: &mut Connection) {
    answers(
        client,
        &[
            ("PING", "+PONG"),
            ("ping hello", "hello"),
            ("SET a 1", "+OK"),
            ("GET a", "1"),
            ("GET nothing", "$-1"),
            ("INCR a", ":2"),
            ("INCRBY a 40", ":42"),
            ("DECR a", ":41"),
            ("DECRBY a 1", ":40"),
            ("APPEND a x", ":3"),
            ("INCR a", "-ERR value is not an integer or out of range"),
            ("STRLEN a", ":3"),
            ("SET n 9223372036854775807", "+OK"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("SET a 2 NX", "$-1"),
            ("SET a 2 XX GET", "40x"),
            ("SET b 2 XX", "$-1"),
            ("SETNX b 1", ":1"),
            ("SETNX b 2", ":0"),
            ("GETSET b 3", "1"),
            ("GETDEL b", "3"),
            ("EXISTS a b a", ":2"),
            ("TYPE a", "+string"),
            ("TYPE b", "+none"),
            ("MSET k1 v1 k2 v2 k3 v3", "+OK"),
            ("MGET k1 no k3 k2", "*4 v1 $-1 v3 v2"),
            ("MSETNX {k}1 a {k}2 b", ":1"),
            ("MSETNX {k}2 a {k}3 b", ":0"),
            ("DBSIZE", ":7"),
            ("DEL k1 k2 k3 no", ":3"),
            ("TTL a", ":-1"),
            ("TTL no", ":-2"),
            ("EXPIRE a 100", ":1"),
            ("TTL a", ":100"),
            ("EXPIRE a 5 NX", ":0"),
            ("EXPIRE a 5 GT", ":0"),
            ("EXPIRE a 500 LT", ":0"),
            ("EXPIRE a 50 LT", ":1"),
            ("EXPIRE a 60 GT", ":1"),
            ("PERSIST a", ":1"),
            ("PERSIST a", ":0"),
            ("EXPIRE a -1", ":1"),
            ("GET a", "$-1"),
            ("SELECT 0", "+OK"),
            ("SELECT 1", "-ERR DB index is out of range: there is database 0"),
            ("LPUSH l 1", "-ERR unknown command 'LPUSH'"),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("ECHO still-here", "still-here"),
            ("CONFIG GET save", "*2 save "),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
        ],
    );
}

fn transactions(client: &mut Connection, other: &mut Connection) {
    answers(
        client,
        &[
            ("EXEC", "-ERR EXEC without MULTI"),
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("SET a 1", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("MSET b 5 c 6 d 7", "+QUEUED"),
            ("MGET a b c d", "+QUEUED"),
            ("LPUSH l 1", "-ERR unknown command 'LPUSH'"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("MSET b 5 c 6 d 7", "+QUEUED"),
            ("MGET a b c d", "+QUEUED"),
            ("EXEC", "*4 +OK :2 +OK *4 2 5 6 7"),
            ("MULTI", "+OK"),
            ("PING", "-ERR this command is not permitted in a transaction"),
            ("SET a 9", "+QUEUED"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("MULTI", "+OK"),
            ("SET a 9", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("GET a", "2"),
            ("WATCH {a}1", "+OK"),
            ("MULTI", "+OK"),
            ("SET {a}1 x", "+QUEUED"),
            ("EXEC", "*1 +OK"),
            ("WATCH {a}1", "+OK"),
        ],
    );
    answers(other, &[("SET {a}1 y", "+OK")]);
    answers(
        client,
        &[
            ("MULTI", "+OK"),
            ("SET {a}1 z", "+QUEUED"),
            ("EXEC", "*-1"),
            ("GET {a}1", "y"),
            ("WATCH a", "+OK"),
            ("UNWATCH", "+OK"),
        ],
    );
}

#[test]
fn gateway_with_its_own_store_answers_as_redis_does() {
    let gateway = Gateway::start(&["--alone", "4"], 0);
    let mut client = Connection::to(gateway.port);
    basics(&mut client);
    transactions(&mut client, &mut Connection::to(gateway.port));
    for crossed in ["WATCH foo bar", "MSETNX foo 1 bar 2"] {
        assert!(client.ask(crossed).starts_with("-CROSSPART"), "{crossed}");
    }
    answers(&mut client, &[("WATCH foo", "+OK"), ("MULTI", "+OK"), ("SET bar 1", "+QUEUED")]);
    assert!(client.ask("EXEC").starts_with("-CROSSPART"));
}

#[test]
fn cluster_answers_as_redis_does() {
    let store = Store::start("shm", 2);
    let mut client = Connection::to(store.gateway.port);
    basics(&mut client);
    transactions(&mut client, &mut Connection::to(store.gateway.port));
    keys_end(&mut client);
    scans(&mut client);
    pipelines(&mut client);
    long_burst(&mut client);
    long_values(&mut client);
}

#[test]
fn store_answers_over_roce() {
    let store = Store::start("roce", 2);
    let mut client = Connection::to(store.gateway.port);
    basics(&mut client);
    pipelines(&mut client);
}

/// Checks that keys expire by the time of the order, even if there are no other commands.
fn keys_end(client: &mut Connection) {
    answers(client, &[("FLUSHALL", "+OK"), ("SET t x PX 300", "+OK"), ("SETEX u 100 y", "+OK"), ("GET t", "x")]);
    let began = Instant::now();
    while client.ask("GET t") != "$-1" {
        assert!(began.elapsed() < Duration::from_secs(10), "the key never expires");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() >= Duration::from_millis(200), "the key expired after only {:?}", began.elapsed());
    answers(client, &[("DBSIZE", ":1"), ("SET u z KEEPTTL", "+OK"), ("SET u z", "+OK"), ("TTL u", ":-1")]);
}

fn scans(client: &mut Connection) {
    let mut expected: Vec<String> = (0..300).map(|n| format!("key:{n}")).collect();
    client.ask("FLUSHALL");
    expected.iter().for_each(|key| assert_eq!(client.ask(&format!("SET {key} 1")), "+OK"));
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 20 MATCH key:*"));
        let words: Vec<&str> = reply.split(' ').collect();
        cursor = words[1].to_owned();
        found.extend(words[3..].iter().map(|key| (*key).to_owned()));
        if cursor == "0" {
            break;
        }
    }
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(client.ask("SCAN 0 COUNT 1000 MATCH nothing*").split(' ').next_back(), Some("*0"));
}

/// Pipelines many requests to several groups. Checks that the replies have the order of the requests, and that each
/// request sees the effects of the earlier requests.
fn pipelines(client: &mut Connection) {
    client.ask("FLUSHALL");
    let keys = ["a", "b", "foo", "bar"];
    let mut expected = Vec::new();
    for round in 0..500 {
        let key = keys[round % keys.len()];
        client.send(&[b"SET", key.as_bytes(), round.to_string().as_bytes()]).unwrap();
        client.send(&[b"GET", key.as_bytes()]).unwrap();
        expected.extend(["+OK".to_owned(), round.to_string()]);
        if round % 50 == 0 {
            client.send(&[b"MGET", b"a", b"foo"]).unwrap();
            expected.push(String::new());
        }
    }
    for (at, expected) in expected.iter().enumerate() {
        let reply = formatted(&client.reply().unwrap());
        if expected.is_empty() {
            assert!(reply.starts_with("*2 "), "{at}: {reply}");
        } else {
            assert_eq!(&reply, expected, "{at}");
        }
    }
}

/// Pipelines a burst that does not fit into one batch, and whose first part has more replies than fit into one reply of
/// the group. Each request must see the effects of the earlier requests all the same.
fn long_burst(client: &mut Connection) {
    let long = "v".repeat(4096);
    assert_eq!(client.ask(&format!("SET {{b}}long {long}")), "+OK");
    for round in 0..20 {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for n in 0..900 {
            let (line, reply) = match n {
                400 => (format!("SET {{b}}x {round}"), "+OK".to_owned()),
                700 => ("GET {b}x".to_owned(), round.to_string()),
                n if n % 8 == 0 => ("GET {b}long".to_owned(), long.clone()),
                _ => ("STRLEN {b}long".to_owned(), ":4096".to_owned()),
            };
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            expected.push(reply);
        }
        client.write(&bytes).unwrap();
        for (at, expected) in expected.iter().enumerate() {
            let reply = formatted(&client.reply().unwrap());
            assert!(reply == *expected, "round {round}, {at}: {}", &reply[..reply.len().min(60)]);
        }
    }
}

/// Checks values of up to 64 KiB, whose answers together do not fit into one reply of a group.
fn long_values(client: &mut Connection) {
    let long = "v".repeat(65_536);
    for n in 0..6 {
        assert_eq!(client.ask(&format!("SET {{l}}{n} {long}")), "+OK");
    }
    for n in 0..6 {
        client.send(&[b"GET", format!("{{l}}{n}").as_bytes()]).unwrap();
    }
    for _ in 0..6 {
        assert_eq!(formatted(&client.reply().unwrap()), long);
    }
    let reply = client.ask("MGET {l}0 {l}1 {l}2");
    assert!(reply.starts_with("-ERR the answer is longer"), "{}", &reply[..reply.len().min(100)]);
    assert!(client.ask(&format!("SET x {long}v")).starts_with("-ERR a key or value is longer"));
    assert!(client.ask("APPEND {l}0 v").starts_with("-ERR string exceeds"));
    assert_eq!(client.ask("STRLEN {l}0"), ":65536");
}

#[test]
fn hello_3_selects_the_third_version() {
    let gateway = Gateway::start(&["--alone", "1"], 0);
    let mut client = Connection::to(gateway.port);
    assert!(client.ask("HELLO 3 SETNAME me").starts_with("%7 server redis"));
    answers(
        &mut client,
        &[
            ("GET no", "_"),
            ("CLIENT GETNAME", "me"),
            ("CONFIG GET databases", "%1 databases 1"),
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("RESET", "+RESET"),
            ("GET no", "$-1"),
            ("CLIENT GETNAME", "$-1"),
        ],
    );
}

#[test]
fn malformed_request_closes_only_its_connection() {
    let gateway = Gateway::start(&["--alone", "1"], 0);
    let mut other = Connection::to(gateway.port);
    for bad in [&b"*1\r\n*1\r\n"[..], b"*99999999\r\n", b"*1\r\n$-5\r\n", &[b'x'; 20_000], b"*1\r\n$4\r\nPINGxx"] {
        let mut client = Connection::to(gateway.port);
        client.write(b"PING\r\n").unwrap();
        client.write(bad).unwrap();
        assert_eq!(formatted(&client.reply().unwrap()), "+PONG");
        let reply = formatted(&client.reply().unwrap());
        assert!(reply.starts_with("-ERR Protocol error"), "{reply}");
        assert!(client.reply().is_err(), "the connection is closed");
    }
    assert_eq!(other.ask("PING"), "+PONG");
}

#[test]
fn client_that_shuts_down_its_side_receives_its_replies() {
    let store = Store::start("shm", 1);
    let mut client = Connection::to(store.gateway.port);
    client.write(b"SET a 1\r\nINCR a\r\n").unwrap();
    client.end_output();
    assert_eq!((client.reply().unwrap(), client.reply().unwrap()), (b"+OK\r\n".to_vec(), b":2\r\n".to_vec()));
    assert!(client.reply().is_err(), "the connection is closed");
}

/// A client shuts down its side while so many replies are unwritten that its last requests are not started yet. The
/// gateway may write all of these replies at once, because the client reads.
#[test]
fn client_that_shuts_down_before_its_last_requests_start_receives_all_replies() {
    const ASKED: usize = 1100;
    let gateway = Gateway::start(&["--alone", "1"], 0);
    // The gateway sends 512 requests at once. Their replies are just longer than the limit of unread replies.
    let value = "v".repeat(2100);
    assert_eq!(Connection::to(gateway.port).ask(&format!("SET a {value}")), "+OK");
    for _ in 0..20 {
        let mut client = Connection::to(gateway.port);
        client.write(&b"GET a\r\n".repeat(ASKED)).unwrap();
        client.end_output();
        for at in 0..ASKED {
            assert_eq!(formatted(&client.reply().unwrap_or_else(|error| panic!("reply {at}: {error}"))), value);
        }
        assert!(client.reply().is_err(), "the connection is closed");
    }
}

/// A client that sends many requests and reads no replies delays only itself. The gateway consumes no processor time
/// for it.
#[test]
fn client_that_does_not_read_delays_only_itself() {
    const ASKED: usize = 1000;
    let gateway = Gateway::start(&["--alone", "1"], 0);
    let (mut client, mut other) = (Connection::to(gateway.port), Connection::to(gateway.port));
    let value = "v".repeat(60_000);
    assert_eq!(client.ask(&format!("SET a {value}")), "+OK");
    let mut asks = client.writer_handle();
    let asking = std::thread::spawn(move || {
        (0..ASKED).for_each(|_| asks.write(b"GET a\r\n").unwrap());
        // The following bytes stay in the socket.
        std::thread::sleep(Duration::from_millis(300));
        (0..ASKED).for_each(|_| asks.write(b"PING\r\n").unwrap());
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(other.ask("PING"), "+PONG");
    let before = gateway.processor_ticks();
    std::thread::sleep(Duration::from_millis(1000));
    let used = gateway.processor_ticks() - before;
    assert!(used < 30, "{used} processor ticks of 10 ms in a second in which the gateway has no work");
    for _ in 0..ASKED {
        assert_eq!(client.reply().unwrap().len(), value.len() + 10);
    }
    for _ in 0..ASKED {
        assert_eq!(client.reply().unwrap(), b"+PONG\r\n");
    }
    asking.join().unwrap();
}
