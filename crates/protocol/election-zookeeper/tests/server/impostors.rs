//! Peers that are not ZooKeeper servers. The election reports them, keeps waiting, and does not panic. Then a real
//! server starts, and the election succeeds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::candidate::{Candidate, Group, config};
use crate::zookeeper::{Zookeeper, free_port};

/// A server that handles each connection with the function that the test supplies.
struct Impostor {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Impostor {
    fn start(treat: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        listener.set_nonblocking(true).expect("a listener that can be ended");
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let _ = stream.set_nonblocking(false);
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                        std::thread::spawn(move || treat(stream));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Impostor { port, over, thread: Some(thread) }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn chatter(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let _ = stream.read(&mut [0; 64]);
}

fn silence(mut stream: TcpStream) {
    while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
}

fn hang_up(stream: TcpStream) {
    drop(stream);
}

/// Grants a session as a real server does, and lets the candidate join the line behind another one. The reply to any
/// other request reports success, but its content has two bytes instead of about a hundred.
fn liar(mut stream: TcpStream) {
    let mut length = [0; 4];
    let mut created: Option<String> = None;
    let mut first = true;
    while stream.read_exact(&mut length).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(length).min(4096) as usize];
        if stream.read_exact(&mut request).is_err() {
            return;
        }
        let answer = if first { granted() } else { lie(&request, &mut created) };
        first = false;
        let mut framed = (answer.len() as u32).to_be_bytes().to_vec();
        framed.extend(answer);
        if stream.write_all(&framed).is_err() {
            return;
        }
    }
}

/// Returns the answer that grants a session: protocol version, timeout, session id, password, and the flag `read-only`,
/// which is 0.
fn granted() -> Vec<u8> {
    let mut answer = [0_i32.to_be_bytes(), 1000_i32.to_be_bytes()].concat();
    answer.extend(77_i64.to_be_bytes());
    answer.extend(text(&[1; 16]));
    answer.push(0);
    answer
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn lie(request: &[u8], created: &mut Option<String>) -> Vec<u8> {
    const CREATE: i32 = 15;
    const LIST: i32 = 8;
    // An answer begins with the number of the request, a zxid, and the error code 0.
    let mut answer = [&request[..4], &1_i64.to_be_bytes(), &0_i32.to_be_bytes()].concat();
    let path = |request: &[u8]| {
        let length = request.get(8..12).map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().unwrap_or_default()));
        request.get(12..12 + length as usize).map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default()
    };
    match i32::from_be_bytes(request[4..8].try_into().unwrap_or_default()) {
        CREATE => {
            let node = format!("{}0000000007", path(request));
            answer.extend(text(node.as_bytes()));
            answer.extend([0; 68]);
            *created = node.rsplit('/').next().map(str::to_owned);
        }
        LIST => {
            let children: Vec<String> = created.iter().cloned().chain(["p1-0000000001".to_owned()]).collect();
            answer.extend((children.len() as u32).to_be_bytes());
            children.iter().for_each(|child| answer.extend(text(child.as_bytes())));
        }
        _ => answer.extend([0xff, 0xff]),
    }
    answer
}

/// Checks that no process leads and that the error names the cause. Then a real server takes over the address, and the
/// candidate leads.
fn sees_through(port: u16, impostor: Option<Impostor>, clues: &[&str]) {
    let root = "/stentor/impostor";
    let server = format!("127.0.0.1:{port}");
    let mut group = Group(vec![Candidate::start(config(0, &[&server], root, Duration::from_secs(1)))]);
    group.until(&format!("one of {clues:?} in the error"), |group| {
        let error = group.0[0].election.status().error.unwrap_or_default();
        error.contains(&server) && clues.iter().any(|clue| error.contains(clue))
    });
    println!("{}", group.0[0].election.status().error.unwrap_or_default());
    group.run(Duration::from_millis(1500));
    assert_eq!(group.0[0].leader(), None);
    drop(impostor);
    let real = group.meanwhile(move || Zookeeper::on(port));
    let (leader, took) = group.agree_anew((0, 0));
    println!("led {took:?} after a real server was there");
    assert_eq!(leader, (1, 0));
    drop(group);
    drop(real);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn impostor_that_refuses_connections() {
    sees_through(free_port(), None, &["refuses connections: is ZooKeeper running there?"]);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn impostor_that_answers_nonsense() {
    let impostor = Impostor::start(chatter);
    sees_through(impostor.port, Some(impostor), &["sends an unknown answer"]);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn impostor_that_is_silent() {
    let impostor = Impostor::start(silence);
    sees_through(impostor.port, Some(impostor), &["accepts connections and is silent"]);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn impostor_that_hangs_up() {
    let impostor = Impostor::start(hang_up);
    sees_through(impostor.port, Some(impostor), &["closes the connection"]);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn impostor_that_grants_a_session_and_lies() {
    let impostor = Impostor::start(liar);
    let port = impostor.port;
    // Version 0.11.2 of the client panics on such an answer. A version that does not would report that it cannot watch.
    sees_through(port, Some(impostor), &["panicked", "cannot watch"]);
}
