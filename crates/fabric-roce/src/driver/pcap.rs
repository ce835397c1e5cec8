//! Captures that Wireshark reads: raw IP packets, nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_wire::Envelope;

/// The link type of packets that begin with their IP header.
const RAW_IP: u32 = 101;
/// A pcap file with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;

/// A file that packets are written to.
#[derive(Debug)]
pub struct Pcap {
    file: BufWriter<File>,
    /// The first error, after which nothing is written.
    error: Option<io::Error>,
}

impl Pcap {
    /// Makes the file.
    ///
    /// # Errors
    /// If there is one already, or what the system says.
    pub fn create(path: &Path) -> io::Result<Pcap> {
        let mut file = BufWriter::new(File::create_new(path)?);
        for word in [MAGIC, 4 << 16 | 2, 0, 0, 65535, RAW_IP] {
            file.write_all(&word.to_le_bytes())?;
        }
        Ok(Pcap { file, error: None })
    }

    /// Adds a packet, with the time of now.
    pub fn write(&mut self, envelope: &Envelope, transport: &[u8]) {
        if self.error.is_none() {
            self.error = self.try_write(envelope, transport).err();
        }
    }

    fn try_write(&mut self, envelope: &Envelope, transport: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut head = [0; 48];
        let head = &mut head[..envelope.header_bytes()];
        envelope.emit(head, transport.len()).map_err(io::Error::other)?;
        let bytes = (head.len() + transport.len()) as u32;
        for word in [now.as_secs() as u32, now.subsec_nanos(), bytes, bytes] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(head)?;
        self.file.write_all(transport)
    }

    /// Writes out what is held back.
    ///
    /// # Errors
    /// The first error of any write.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.file.flush(),
        }
    }
}

impl Drop for Pcap {
    fn drop(&mut self) {
        // Whoever wants to know calls `finish`.
        let _ = self.file.flush();
    }
}
