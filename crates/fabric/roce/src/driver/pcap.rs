//! Captures in pcap format for Wireshark, with raw IP packets and timestamps in nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_wire::Envelope;

/// The link type of packets that begin with their IP header.
const RAW_IP: u32 = 101;
/// Magic number of a pcap file with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;

/// A file that accepts each batch of whole packets completely or not at all. If a batch is written only partly, for
/// example because the disk is full, that part is removed again.
#[derive(Debug)]
struct Batches {
    file: File,
    /// Length of the file, in bytes.
    bytes: u64,
}

impl Write for Batches {
    fn write(&mut self, packets: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all(packets) {
            // A pipe cannot be truncated. Its reader may receive an incomplete packet at the end.
            let _ = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
            return Err(error);
        }
        self.bytes += packets.len() as u64;
        Ok(packets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A capture file.
#[derive(Debug)]
pub struct Pcap {
    file: BufWriter<Batches>,
    /// Buffer for one packet with its header. Only whole records are written to the file, so none is incomplete if the
    /// process is killed.
    record: Vec<u8>,
    /// The first error, until it is reported.
    error: Option<io::Error>,
    /// `true` after an error. No further packets are written.
    broken: bool,
}

impl Pcap {
    /// Creates the file. If `path` is an existing pipe or character device, opens it for writing, so that `wireshark -k
    /// -i PIPE` can show packets during the capture.
    ///
    /// # Errors
    /// Returns an error if `path` exists and is neither a pipe nor a character device, or the error of the operating
    /// system.
    pub fn create(path: &Path) -> io::Result<Pcap> {
        let file = File::create_new(path).or_else(|error| match std::fs::metadata(path) {
            Ok(there) if there.file_type().is_fifo() || there.file_type().is_char_device() => {
                File::options().write(true).open(path)
            }
            _ => Err(error),
        });
        Pcap::begin(file?)
    }

    fn begin(file: File) -> io::Result<Pcap> {
        let mut file = BufWriter::new(Batches { file, bytes: 0 });
        for word in [MAGIC, 4 << 16 | 2, 0, 0, 65535, RAW_IP] {
            file.write_all(&word.to_le_bytes())?;
        }
        Ok(Pcap { file, record: Vec::new(), error: None, broken: false })
    }

    /// Adds a packet with the current time, unless an earlier write failed.
    pub fn write(&mut self, envelope: &Envelope, transport: &[u8]) {
        if !self.broken {
            self.error = self.try_write(envelope, transport).err();
            self.broken = self.error.is_some();
        }
    }

    /// Adds a packet, which begins with its IP header, unless an earlier write failed.
    pub fn write_packet(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.error = self.try_write_bytes(&[], bytes).err();
            self.broken = self.error.is_some();
        }
    }

    /// Returns the error that stopped the capture, unless it was already returned.
    pub fn next_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    fn try_write(&mut self, envelope: &Envelope, transport: &[u8]) -> io::Result<()> {
        let mut head = [0; 48];
        let head = &mut head[..envelope.header_bytes()];
        envelope.emit(head, transport.len()).map_err(io::Error::other)?;
        self.try_write_bytes(head, transport)
    }

    fn try_write_bytes(&mut self, head: &[u8], transport: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes = (head.len() + transport.len()) as u32;
        self.record.clear();
        for word in [now.as_secs() as u32, now.subsec_nanos(), bytes, bytes] {
            self.record.extend_from_slice(&word.to_le_bytes());
        }
        self.record.extend_from_slice(head);
        self.record.extend_from_slice(transport);
        self.file.write_all(&self.record)
    }

    /// Writes buffered packets to the file.
    ///
    /// # Errors
    /// Returns the first error of this or an earlier write, unless it was already returned.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None if self.broken => Ok(()),
            None => self.file.flush(),
        }
    }
}

impl Drop for Pcap {
    fn drop(&mut self) {
        // Errors are ignored here; `finish` reports them.
        let _ = self.file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_overwritten() {
        let there = std::env::current_exe().unwrap();
        assert_eq!(Pcap::create(&there).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Pcap::create(there.parent().unwrap()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn only_whole_packets_are_in_the_file_at_any_time() {
        let path = std::env::temp_dir().join(format!("stentor-pcap-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut pcap = Pcap::create(&path).unwrap();
        let envelope = Envelope::plain([127, 0, 0, 1].into(), 50_000, [127, 0, 0, 2].into()).unwrap();
        let mut grew = 0;
        for n in 0..200 {
            pcap.write(&envelope, &[7; 1000]);
            let bytes = std::fs::metadata(&path).unwrap().len();
            assert!(bytes == 0 || (bytes - 24).is_multiple_of(16 + 28 + 1000), "{bytes} bytes after {n} packets");
            grew = grew.max(bytes);
        }
        assert!(grew > 100_000);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_disk_is_reported_once() {
        let full = || Pcap::create(Path::new("/dev/full")).unwrap();
        let envelope = Envelope::plain([127, 0, 0, 1].into(), 50_000, [127, 0, 0, 2].into()).unwrap();
        let mut pcap = full();
        (0..100).for_each(|_| pcap.write(&envelope, &[7; 1000]));
        assert_eq!(pcap.next_error().unwrap().kind(), io::ErrorKind::StorageFull);
        pcap.write(&envelope, &[7; 1000]);
        assert!(pcap.next_error().is_none() && pcap.finish().is_ok());
        // Packets that are still buffered when the disk is full are reported by `finish`.
        let mut pcap = full();
        pcap.write(&envelope, &[7; 100]);
        assert!(pcap.next_error().is_none());
        assert_eq!(pcap.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
