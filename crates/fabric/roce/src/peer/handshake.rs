//! The TCP handshake of `ibv_rc_pingpong`. Each side sends `LID:QPN:PSN:GID` in hexadecimal, and the client sends
//! first.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::PeerError;

/// Length of a line: `0000:000000:000000:`, 32 digits, and a zero byte.
const BYTES: usize = 52;
/// Maximum time to wait for a line from the other side.
const PATIENCE: Duration = Duration::from_secs(60);

/// The parameters of a queue pair that one side sends to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub number: u32,
    /// First PSN, 24 bits.
    pub psn: u32,
    /// The GID; an IPv4 address is sent as `::ffff:a.b.c.d`.
    pub address: IpAddr,
}

impl Destination {
    fn encode(&self) -> [u8; BYTES] {
        let gid = match self.address {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let text =
            format!("{:04x}:{:06x}:{:06x}:{:032x}", self.lid, self.number & 0xff_ffff, self.psn, u128::from(gid));
        let mut bytes = [0; BYTES];
        bytes[..BYTES - 1].copy_from_slice(text.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Destination> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
        let mut fields = text.split(':');
        // Only digits are allowed: `from_str_radix` would also accept a plus sign.
        let is_number = |field: &&str, digits| field.len() == digits && field.bytes().all(|b| b.is_ascii_hexdigit());
        let mut field = |digits: usize| fields.next().filter(|field| is_number(field, digits));
        let lid = u16::from_str_radix(field(4)?, 16).ok()?;
        let number = u32::from_str_radix(field(6)?, 16).ok()?;
        let psn = u32::from_str_radix(field(6)?, 16).ok()?;
        let gid = Ipv6Addr::from(u128::from_str_radix(field(32)?, 16).ok()?);
        let address = gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4);
        fields.next().is_none().then_some(Destination { lid, number, psn, address })
    }
}

/// The TCP connection over which the parameters of queue pairs are exchanged.
#[derive(Debug)]
pub struct Meeting {
    stream: TcpStream,
    place: String,
    client: bool,
}

/// Waits for a client.
///
/// # Errors
/// Returns [`PeerError::Tcp`] if a socket call fails.
pub fn listen(address: SocketAddr) -> Result<Meeting, PeerError> {
    let failed = |what| move |source| PeerError::Tcp { what, place: address.to_string(), source };
    let listener = TcpListener::bind(address).map_err(failed("listen at"))?;
    let (stream, from) = listener.accept().map_err(failed("accept at"))?;
    Ok(Meeting { stream, place: from.to_string(), client: false })
}

/// Connects to a server, which may start up to `patience` later.
///
/// # Errors
/// Returns [`PeerError::Tcp`] if the connection fails.
pub fn meet(host: &str, port: u16, patience: Duration) -> Result<Meeting, PeerError> {
    let failed = |what| move |source| PeerError::Tcp { what, place: format!("{host}:{port}"), source };
    let since = Instant::now();
    loop {
        let mut addresses = (host, port).to_socket_addrs().map_err(failed("find"))?;
        let address = addresses.next().ok_or_else(|| failed("find")(std::io::ErrorKind::NotFound.into()))?;
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(Meeting { stream, place: address.to_string(), client: true }),
            Err(error) if since.elapsed() > patience => return Err(failed("connect to")(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

impl Meeting {
    fn failed(&self, what: &'static str) -> impl Fn(std::io::Error) -> PeerError {
        let place = self.place.clone();
        move |source| PeerError::Tcp { what, place: place.clone(), source }
    }

    fn hear(&mut self) -> Result<Destination, PeerError> {
        let mut bytes = [0; BYTES];
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(self.failed("wait for"))?;
        self.stream.read_exact(&mut bytes).map_err(self.failed("hear"))?;
        let said = || PeerError::Handshake {
            place: self.place.clone(),
            said: String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned(),
        };
        Destination::decode(&bytes).ok_or_else(said)
    }

    /// Exchanges the parameters of both queue pairs. Calls `ready` with the other side's parameters, to connect the
    /// queue pair, before it notifies the other side that it may send.
    ///
    /// # Errors
    /// Returns a [`PeerError`].
    pub fn exchange(
        &mut self,
        own: &Destination,
        ready: impl FnOnce(&Destination) -> Result<(), PeerError>,
    ) -> Result<Destination, PeerError> {
        let other;
        if self.client {
            self.stream.write_all(&own.encode()).map_err(self.failed("tell"))?;
            other = self.hear()?;
            ready(&other)?;
            self.stream.write_all(b"done\0").map_err(self.failed("tell"))?;
        } else {
            other = self.hear()?;
            ready(&other)?;
            self.stream.write_all(&own.encode()).map_err(self.failed("tell"))?;
            let mut done = [0; 5];
            self.stream.read_exact(&mut done).map_err(self.failed("hear"))?;
        }
        Ok(other)
    }

    /// Returns the stream, for further messages.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_those_of_the_stock_example() {
        let own = Destination { lid: 0, number: 0x11, psn: 0xabcdef, address: [10, 9, 0, 1].into() };
        let bytes = own.encode();
        assert_eq!(&bytes[..51], b"0000:000011:abcdef:00000000000000000000ffff0a090001");
        assert_eq!(Destination::decode(&bytes), Some(own));
        let mut wrong = bytes;
        wrong[4] = b'-';
        assert_eq!(Destination::decode(&wrong), None);
        assert_eq!(Destination::decode(&[0xff; BYTES]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_line_or_nothing(
            changes in proptest::collection::vec((0..BYTES, prop_oneof![any::<u8>(), Just(b':'), Just(b'+')]), 0..4),
        ) {
            let own = Destination { lid: 0, number: 0x11, psn: 0xabcdef, address: [10, 9, 0, 1].into() };
            let mut bytes = own.encode();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(told) = Destination::decode(&bytes) {
                // A line that is accepted has exactly the required number of hexadecimal digits, in lower or upper
                // case.
                prop_assert_eq!(&bytes.to_ascii_lowercase()[..BYTES - 1], &told.encode()[..BYTES - 1]);
            }
        }
    }
}
