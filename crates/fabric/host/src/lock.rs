//! The lock on a user's process of a cluster: a listening abstract Unix socket, which is no file.
//!
//! Nobody can remove it, and the kernel frees it with its process. A process whose socket was removed from its directory
//! still holds it, so no second process of its id starts. Abstract sockets belong to a network namespace: processes in
//! different ones do not see each other's locks, and only their sockets in the directory tell them of each other.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket_with};

use crate::credentials::Credentials;
use crate::socket::{self, BACKLOG, FLAGS};

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(OwnedFd);

/// What came of taking a lock.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is held now.
    Ours(Lock),
    /// This process holds it; `None` if that cannot be told at present.
    Theirs(Option<Credentials>),
}

impl Lock {
    /// Takes the lock of this name if it is free.
    pub(crate) fn take(name: &str) -> Result<Taken, Errno> {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
        match bind(&socket, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                return match ask(&address) {
                    Ok(holder) => Ok(Taken::Theirs(Some(holder))),
                    // Its queue is full, it does not listen yet, or it has just gone.
                    Err(Errno::AGAIN | Errno::CONNREFUSED) => Ok(Taken::Theirs(None)),
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        }
        // Whoever connects learns from the kernel who listens.
        listen(&socket, BACKLOG)?;
        Ok(Taken::Ours(Lock(socket)))
    }

    /// Hangs up on those who asked who holds the lock: an unanswered connection stays in a queue that has an end.
    pub(crate) fn hang_up(&self) {
        for _ in 0..BACKLOG {
            if !matches!(socket::accept(&self.0), Ok(Some(_))) {
                break;
            }
        }
    }
}

/// Who listens there.
fn ask(address: &SocketAddrUnix) -> Result<Credentials, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    connect(&socket, address)?;
    Credentials::of(&socket).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CONNREFUSED))
}

/// Who holds the lock of this name. `None`: nobody, or that cannot be told at present.
pub(crate) fn holder(name: &str) -> Option<Credentials> {
    ask(&SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()
}

#[cfg(test)]
mod tests {
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
        assert!(matches!(Lock::take(&name).unwrap(), Taken::Ours(_)));
    }

    #[test]
    fn holder_that_is_asked_without_end_is_known_again_after_it_hangs_up() {
        let name = name("asked");
        let Taken::Ours(lock) = Lock::take(&name).unwrap() else { panic!("it was free") };
        let is_known = || matches!(Lock::take(&name).unwrap(), Taken::Theirs(Some(_)));
        let asked = (0..4 * BACKLOG).take_while(|_| is_known()).count() as i32;
        assert!((1..4 * BACKLOG).contains(&asked), "the queue has an end");
        lock.hang_up();
        lock.hang_up();
        assert!(is_known());
    }
}
