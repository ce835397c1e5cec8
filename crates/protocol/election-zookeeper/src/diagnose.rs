//! Finds out why no session could be established, because the client library does not report the reason.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time within which a server must answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Connects to each server and returns one line that describes what is wrong with it. The blocking work runs on a
/// thread of its own, not on the runtime's.
pub(crate) async fn diagnose(servers: &[String], client: &str) -> String {
    let asked = servers.to_vec();
    let (sender, answer) = tokio::sync::oneshot::channel();
    let ask = move || {
        let found: Vec<_> = asked.iter().map(|server| format!("{server} {}", examine(server))).collect();
        let _ = sender.send(found.join("; "));
    };
    let thread = std::thread::Builder::new().name("diagnose".into()).spawn(ask);
    let found = match thread {
        Ok(_) => answer.await.unwrap_or_else(|_| "the servers could not be asked".into()),
        Err(error) => format!("the servers could not be asked: {error}"),
    };
    format!("no ZooKeeper session ({client}): {found}")
}

fn examine(server: &str) -> String {
    let addresses = match server.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return format!("has no address ({error}): check its name"),
    };
    let mut last = "has no address: check its name".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return converse(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                last = "refuses connections: is ZooKeeper running there?".into();
            }
            Err(error) => last = format!("cannot be reached ({error})"),
        }
    }
    last
}

/// Asks to resume a session that cannot exist. A ZooKeeper server answers that it has expired, and stores nothing.
fn converse(mut stream: TcpStream) -> String {
    let ready = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    if let Err(error) = ready.and_then(|()| stream.write_all(&request())) {
        return format!("closes the connection ({error}): is it a ZooKeeper server?");
    }
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return "accepts connections and is silent: it is overloaded, stopped, or no ZooKeeper server".into();
        }
        Err(_) => return "closes the connection: it has no quorum, or is no ZooKeeper server".into(),
    }
    // The response to a session request has 36 bytes, or 37 from servers that support the read-only mode.
    match u32::from_be_bytes(length) {
        36 | 37 => "answers, but granted no session in time: is it overloaded?".into(),
        _ => format!("sends an unknown answer (it begins with {length:02x?}): is it a ZooKeeper server?"),
    }
}

/// Returns a session request: length, protocol version, last zxid, timeout, session id, password.
fn request() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(1000_i32.to_be_bytes());
    body.extend(1_i64.to_be_bytes());
    body.extend(16_i32.to_be_bytes());
    body.extend([0; 16]);
    let mut request = (body.len() as u32).to_be_bytes().to_vec();
    request.extend(body);
    request
}
