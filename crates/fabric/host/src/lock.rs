//! The lock on a process id of a user's cluster: a listening abstract Unix socket, which is no file.
//!
//! No other process can remove the lock, and the kernel frees it when its process ends. A process whose socket was
//! removed from its directory still holds the lock, so no second process with its id starts. Abstract sockets belong to
//! a network namespace. Processes in different namespaces do not see each other's locks; they detect each other only by
//! the sockets in the directory.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket_with};

use crate::credentials::Credentials;
use crate::socket::{self, BACKLOG, FLAGS};

/// A lock, which this process holds until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock(OwnedFd);

/// The result of an attempt to lock.
#[derive(Debug)]
pub(crate) enum Taken {
    /// This process now holds the lock.
    Ours(Lock),
    /// Another process holds the lock; `None` if its credentials are currently unknown.
    Theirs(Option<Credentials>),
}

impl Lock {
    /// Locks `name` if it is free.
    pub(crate) fn take(name: &str) -> Result<Taken, Errno> {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
        match bind(&socket, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                return match ask(&address) {
                    Ok(holder) => Ok(Taken::Theirs(Some(holder))),
                    // The holder's queue is full, it does not listen yet, or it has just ended.
                    Err(Errno::AGAIN | Errno::CONNREFUSED) => Ok(Taken::Theirs(None)),
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        }
        // Processes that connect read the holder's credentials from the kernel.
        listen(&socket, BACKLOG)?;
        Ok(Taken::Ours(Lock(socket)))
    }

    /// Closes the connections of processes that queried the holder: unaccepted connections would fill the queue, which
    /// is bounded.
    pub(crate) fn hang_up(&self) {
        for _ in 0..BACKLOG {
            if !matches!(socket::accept(&self.0), Ok(Some(_))) {
                break;
            }
        }
    }
}

/// Returns the credentials of the process that listens at `address`.
fn ask(address: &SocketAddrUnix) -> Result<Credentials, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    connect(&socket, address)?;
    Credentials::of(&socket).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CONNREFUSED))
}

/// Returns the credentials of the holder of the lock `name`, or `None` if it is free or the holder is currently
/// unknown.
pub(crate) fn holder(name: &str) -> Option<Credentials> {
    ask(&SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn name(of: &str) -> String {
        format!("stentor-test-{}-{of}", std::process::id())
    }

    #[test]
    fn lock_is_held_until_it_is_dropped_and_its_holder_is_known() {
        let name = name("held");
        let Taken::Ours(lock) = Lock::take(&name).unwrap() else { panic!("it was free") };
        let Taken::Theirs(holder) = Lock::take(&name).unwrap() else { panic!("taken twice") };
        assert_eq!(holder.unwrap().pid, std::process::id() as i32);
        drop(lock);
        // A child that another test has just started holds a copy of the descriptor until it calls exec.
        let since = Instant::now();
        while !matches!(Lock::take(&name).unwrap(), Taken::Ours(_)) {
            assert!(since.elapsed() < Duration::from_secs(5), "the lock is not free");
            std::thread::yield_now();
        }
    }

    #[test]
    fn hanging_up_makes_room_for_more_queries() {
        let name = name("asked");
        let Taken::Ours(lock) = Lock::take(&name).unwrap() else { panic!("it was free") };
        let is_known = || matches!(Lock::take(&name).unwrap(), Taken::Theirs(Some(_)));
        let asked = (0..4 * BACKLOG).take_while(|_| is_known()).count() as i32;
        assert!((1..4 * BACKLOG).contains(&asked), "the queue is bounded");
        lock.hang_up();
        lock.hang_up();
        assert!(is_known());
    }
}
