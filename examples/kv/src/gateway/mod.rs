//! A gateway. It serves many TCP clients over the Redis protocol as one client of the cluster.
//!
//! One thread does all the work. In each round it reads requests of clients, sends them to the groups in batches,
//! receives answers of the groups, and writes replies. It sleeps when there is nothing to do.

mod backend;
mod connection;
mod glob;
mod own;
mod queues;
mod reply;

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stentor::{Cluster, WaitMode};

use self::backend::{Answered, Backend};
use self::connection::{Connection, Desk};
use self::own::Facts;
use self::queues::{Queues, Waiter};

const LISTENER: u64 = u64::MAX;
const CLUSTER: u64 = u64::MAX - 1;
const EVENTS: usize = 1024;
const READ_BYTES: usize = 64 << 10;
/// Maximum time that the gateway sleeps.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);
/// Time for which the gateway accepts no clients after file descriptors have run out.
const DEAF: Duration = Duration::from_millis(200);

/// The store that a gateway serves.
pub enum Serves {
    /// A cluster.
    Cluster {
        /// The cluster.
        cluster: Cluster,
        /// Address of this host that the gateway uses on the fabric, or `None` for the default.
        bind: Option<IpAddr>,
        /// The way in which the gateway waits for the cluster, or `None` for the default.
        wait: Option<WaitMode>,
    },
    /// A store in this process with this number of partitions and without replication. It serves to measure the cost of
    /// the gateway itself.
    Own(u16),
}

/// A listening gateway.
pub struct Gateway {
    listener: TcpListener,
    epoll: OwnedFd,
    backend: Backend,
    clients: Clients,
    buffer: Vec<u8>,
    /// Time until which the gateway accepts no clients, because file descriptors have run out.
    deaf_until: Option<Instant>,
    stop: Arc<AtomicBool>,
}

/// The TCP clients and their pending requests.
struct Clients {
    groups: u16,
    places: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    /// Numbers of the connections that may have bytes to write or requests to start.
    touched: Vec<u32>,
    queues: Queues,
    began: Instant,
    numbered: u64,
    requests: u64,
    port: u16,
    item: Vec<u8>,
    singles: Vec<(u16, bool, u32, usize)>,
    bytes: Vec<u8>,
}

impl Gateway {
    /// Listens at an address, and connects to the cluster. [`run`](Gateway::run) returns when `stop` is set.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot listen at the address, or cannot connect to the cluster in time.
    pub fn new(listen: &str, serves: Serves, stop: Arc<AtomicBool>) -> Result<Gateway> {
        raise_limit();
        let listener = Self::listen(listen)?;
        let (backend, groups) = match serves {
            Serves::Cluster { cluster, bind, wait } => {
                let groups = cluster.groups().count() as u16;
                let backend = Backend::connect(cluster, bind, wait);
                (backend.context("the gateway cannot reach the cluster")?, groups)
            }
            Serves::Own(groups) => (Backend::own(groups), groups),
        };
        Self::with(listener, backend, groups, stop)
    }

    fn listen(at: &str) -> Result<TcpListener> {
        let listener =
            TcpListener::bind(at).with_context(|| format!("cannot listen at {at}: choose another address"))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    fn with(listener: TcpListener, backend: Backend, groups: u16, stop: Arc<AtomicBool>) -> Result<Gateway> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        if let Some(descriptor) = backend.descriptor() {
            epoll::add(&epoll, descriptor, EventData::new_u64(CLUSTER), EventFlags::IN)?;
        }
        let port = listener.local_addr()?.port();
        let clients = Clients {
            groups,
            places: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            queues: Queues::new(groups),
            began: Instant::now(),
            numbered: 0,
            requests: 0,
            port,
            item: Vec::new(),
            singles: Vec::new(),
            bytes: Vec::new(),
        };
        Ok(Gateway { listener, epoll, backend, clients, buffer: vec![0; READ_BYTES], deaf_until: None, stop })
    }

    /// Returns the port at which the gateway listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.clients.port
    }

    /// Serves clients until `stop` is set.
    ///
    /// # Errors
    /// Returns an error if a system call fails. If the cluster cannot be reached, the gateway retries until `stop` is
    /// set.
    pub fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut sleeps_until = None;
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let patience = sleeps_until.map_or(Duration::ZERO, |until: Instant| until.saturating_duration_since(now));
            let patience = patience.min(LONGEST_SLEEP).try_into().context("a duration")?;
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.deaf_until.is_some_and(|until| until <= now) {
                self.deaf_until = None;
                epoll::add(&self.epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
            }
            self.take_events(&events)?;
            sleeps_until = self.round()?;
        }
        Ok(())
    }

    fn take_events(&mut self, events: &[epoll::Event]) -> Result<()> {
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept()?,
                CLUSTER => {}
                place => {
                    let (place, flags) = (place as u32, event.flags);
                    let Some(connection) = self.clients.connection(place) else { continue };
                    let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                    let gone = broken || (flags.contains(EventFlags::IN) && connection.read(&mut self.buffer).is_err());
                    if gone {
                        self.close(place);
                    } else {
                        self.clients.touched.push(place);
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_exhausted(&error) => {
                    // The listener stays readable, so epoll would wake the gateway again at once. The pause prevents a
                    // busy loop.
                    eprintln!("accepting no more clients for {DEAF:?}: {error}; raise the limit of open files");
                    epoll::delete(&self.epoll, &self.listener)?;
                    self.deaf_until = Some(Instant::now() + DEAF);
                    return Ok(());
                }
                // For example, the client has closed the connection already.
                Err(_) => {}
            }
        }
    }

    fn add(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let Clients { places, free, numbered, .. } = &mut self.clients;
        *numbered += 1;
        let connection = Connection::new(stream, *numbered);
        let place = free.pop().unwrap_or_else(|| {
            places.push((0, None));
            places.len() as u32 - 1
        });
        let data = EventData::new_u64(u64::from(place));
        epoll::add(&self.epoll, connection.stream.as_fd(), data, EventFlags::IN)?;
        places[place as usize].1 = Some(connection);
        Ok(())
    }

    /// Starts requests, handles answers, and writes replies. Returns the time until which the gateway may sleep, or
    /// `None` if there is work left.
    fn round(&mut self) -> Result<Option<Instant>> {
        self.go_on();
        if self.backend.has_reconnected()? {
            self.watch_backend();
        }
        let Gateway { backend, clients, .. } = self;
        let sent = clients.send(backend);
        let turned = backend.turn(|name, answered| clients.take(name, answered));
        let until = match turned {
            Ok(until) => until,
            Err(error) => {
                eprintln!("the connection to the cluster has ended, and the gateway reconnects: {error:#}");
                self.clients.lose(&error.to_string());
                self.backend.reconnect(&self.stop)?;
                None
            }
        };
        let any = !self.clients.touched.is_empty();
        self.go_on();
        // While the gateway connects, waiting requests are no reason to stay awake.
        let is_waiting = self.clients.queues.is_waiting() && !self.backend.is_connecting();
        Ok(until.filter(|_| !any && !sent && !is_waiting))
    }

    fn watch_backend(&self) {
        if let Some(descriptor) = self.backend.descriptor() {
            // The old descriptor was removed from epoll when its client was dropped.
            let _ = epoll::add(&self.epoll, descriptor, EventData::new_u64(CLUSTER), EventFlags::IN);
        }
    }

    /// Writes to the touched clients, and starts their next requests.
    fn go_on(&mut self) {
        let mut touched = std::mem::take(&mut self.clients.touched);
        for place in touched.drain(..) {
            if self.go_on_with(place).is_err() {
                self.close(place);
            }
        }
        // Connections that were touched meanwhile are handled in the next round.
        if self.clients.touched.is_empty() {
            self.clients.touched = touched;
        }
    }

    /// Writes to a client, and starts its next requests. If the client had too many unread replies and has read some of
    /// them, its waiting requests are started too.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, or is closing and its last reply is written. In both cases the
    /// caller closes the connection.
    fn go_on_with(&mut self, place: u32) -> io::Result<()> {
        loop {
            self.clients.begin(place);
            let Some(connection) = self.clients.connection(place) else { return Ok(()) };
            let was_full = connection.is_full();
            connection.write()?;
            if !was_full || connection.is_full() {
                break;
            }
        }
        let Some(connection) = self.clients.connection(place) else { return Ok(()) };
        let interest = connection.interest();
        if interest != std::mem::replace(&mut connection.watched_for, interest) {
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, interest.reads);
            flags.set(EventFlags::OUT, interest.writes);
            epoll::modify(&self.epoll, connection.stream.as_fd(), EventData::new_u64(u64::from(place)), flags)?;
        }
        Ok(())
    }

    fn close(&mut self, place: u32) {
        if let Some((generation, connection)) = self.clients.places.get_mut(place as usize)
            && let Some(connection) = connection.take()
        {
            let _ = epoll::delete(&self.epoll, connection.stream.as_fd());
            *generation = generation.wrapping_add(1);
            self.clients.free.push(place);
        }
    }
}

/// Raises the limit of open files, so that as many clients as possible can connect.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this call fails, the gateway serves fewer clients.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Clients {
    fn connection(&mut self, place: u32) -> Option<&mut Connection> {
        self.places.get_mut(place as usize)?.1.as_mut()
    }

    /// Starts a client's next requests.
    fn begin(&mut self, place: u32) {
        let clients = self.places.len() - self.free.len();
        let Clients { groups, places, queues, began, requests, port, item, singles, bytes, .. } = self;
        let Some((generation, Some(connection))) = places.get_mut(place as usize) else { return };
        let now = Instant::now();
        let seconds = now.duration_since(*began).as_secs();
        let facts = Facts { clients, requests: *requests, groups: *groups, seconds, port: *port };
        let me = (place, *generation);
        connection.go_on(&mut Desk { queues, groups: *groups, now, me, facts, requests, item, singles, bytes });
    }

    fn send(&mut self, backend: &mut Backend) -> bool {
        let Clients { places, queues, touched, .. } = self;
        queues.send(backend, |waiters, why| {
            fail(places, touched, waiters, &format!("TRYAGAIN not applied: {why}"));
        })
    }

    fn take(&mut self, name: backend::Name, answered: Answered<'_>) {
        let Clients { places, queues, touched, groups, .. } = self;
        let Some(batch) = queues.take(name) else { return };
        match answered {
            Answered::Replies(replies) => queues.answered(batch, &replies, |waiter, parts| {
                if let Some(connection) = waiting(places, &waiter) {
                    connection.answered(waiter.slot, parts, *groups);
                    if touched.last() != Some(&waiter.connection) {
                        touched.push(waiter.connection);
                    }
                }
            }),
            Answered::NotApplied(why) => {
                if let Some(batch) = queues.refused(batch, why) {
                    fail(places, touched, &batch.waiters, &format!("TRYAGAIN not applied: {why}"));
                }
            }
            Answered::Unknown(why) => fail(places, touched, &batch.waiters, &format!("UNKNOWN {why}")),
        }
    }

    /// Handles the end of the cluster's client. The outcomes of all batches in flight are unknown.
    fn lose(&mut self, why: &str) {
        let Clients { places, queues, touched, .. } = self;
        for batch in queues.lose() {
            fail(places, touched, &batch.waiters, &format!("UNKNOWN the command is applied once or never: {why}"));
        }
    }
}

fn waiting<'a>(places: &'a mut [(u32, Option<Connection>)], waiter: &Waiter) -> Option<&'a mut Connection> {
    let (generation, connection) = places.get_mut(waiter.connection as usize)?;
    connection.as_mut().filter(|_| *generation == waiter.generation)
}

fn fail(places: &mut [(u32, Option<Connection>)], touched: &mut Vec<u32>, waiters: &[Waiter], why: &str) {
    for waiter in waiters {
        if let Some(connection) = waiting(places, waiter) {
            connection.failed(waiter.slot, why);
            touched.push(waiter.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A gateway whose connection to the cluster has ended. None of the nodes runs.
    struct Alone {
        stop: Arc<AtomicBool>,
        gateway: Option<JoinHandle<Result<()>>>,
        client: TcpStream,
    }

    impl Alone {
        fn start() -> Alone {
            let cluster = Cluster::builder("kv-alone").group("g1", [("a", "127.0.0.1:7101")]).build();
            let (backend, next) = Backend::connecting(cluster.expect("a valid cluster"));
            let (stop, listener) = (Arc::default(), Gateway::listen("127.0.0.1:0").expect("a free port"));
            let gateway = Gateway::with(listener, backend, 1, Arc::clone(&stop)).expect("the gateway starts");
            let client = TcpStream::connect(("127.0.0.1", gateway.port())).expect("the gateway listens");
            client.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
            let gateway = thread::spawn(move || {
                let _next = next;
                gateway.run()
            });
            Alone { stop, gateway: Some(gateway), client }
        }

        fn ask(&mut self, request: &str) -> String {
            self.client.write_all(request.as_bytes()).expect("the client is connected");
            let mut reply = Vec::new();
            while !reply.ends_with(b"\r\n") {
                let mut byte = [0];
                self.client.read_exact(&mut byte).expect("a reply");
                reply.extend(byte);
            }
            String::from_utf8(reply).expect("the reply is text")
        }
    }

    impl Drop for Alone {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            let ended = self.gateway.take().map(JoinHandle::join);
            assert!(thread::panicking() || matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
        }
    }

    #[test]
    fn clients_are_served_while_the_gateway_connects_to_the_cluster() {
        let mut alone = Alone::start();
        assert_eq!(alone.ask("PING\r\n"), "+PONG\r\n");
    }

    #[test]
    #[ignore = "slow: cargo xtask test --only slow"]
    fn requests_end_with_an_error_while_the_gateway_connects_to_the_cluster() {
        let mut alone = Alone::start();
        let reply = alone.ask("GET k\r\n");
        assert!(reply.starts_with("-TRYAGAIN not applied: "), "{reply}");
        assert_eq!(alone.ask("PING\r\n"), "+PONG\r\n");
    }
}
