//! A resource that checks fencing tokens. It is a socket that receives writes. Each write is a line with a token.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use stentor_lock::TokenGate;

/// First word of the answer to a write that the resource admits.
pub(crate) const ADMITTED: &str = "admitted";
/// First word of the answer to a write that the resource refuses.
pub(crate) const REFUSED: &str = "refused";

/// A write that the resource has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteAttempt {
    pub(crate) token: u64,
    pub(crate) is_admitted: bool,
}

#[derive(Debug, Default)]
struct Shared {
    gate: TokenGate,
    writes: Vec<WriteAttempt>,
}

/// The resource. All connections share its gate.
#[derive(Clone, Debug)]
pub(crate) struct ResourceServer(Arc<Mutex<Shared>>);

impl ResourceServer {
    /// Creates a socket at this path, and serves it until the process ends.
    pub(crate) fn start(path: &Path) -> Result<ResourceServer> {
        let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        let server = ResourceServer(Arc::default());
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                // An error of a connection means that the client has ended.
                thread::spawn(move || serving.serve(stream).is_ok());
            }
        });
        Ok(server)
    }

    /// Returns the writes that the resource has received so far.
    pub(crate) fn writes(&self) -> Vec<WriteAttempt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).writes.clone()
    }

    fn serve(&self, mut stream: UnixStream) -> Result<()> {
        for line in BufReader::new(stream.try_clone()?).lines() {
            let answer = match line?.parse() {
                Ok(token) => self.write(token),
                Err(_) => format!("{REFUSED} the line is not a token"),
            };
            writeln!(stream, "{answer}")?;
        }
        Ok(())
    }

    fn write(&self, token: u64) -> String {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = shared.gate.admit(token);
        shared.writes.push(WriteAttempt { token, is_admitted: admitted.is_ok() });
        match admitted {
            Ok(()) => format!("{ADMITTED} {token}"),
            Err(stale) => format!("{REFUSED} {stale}"),
        }
    }
}
