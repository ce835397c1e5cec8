//! Captures that Wireshark reads: raw IP packets, nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_wire::Envelope;

/// The link type of packets that begin with their IP header.
const RAW_IP: u32 = 101;
/// A pcap file with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Takes all that it is given at once, which is whole packets, or nothing: what a full disk took of it is cut off.
#[derive(Debug)]
struct Batches {
    file: File,
    /// Bytes in the file.
    bytes: u64,
}

impl Write for Batches {
    fn write(&mut self, packets: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all(packets) {
            // A pipe cannot be cut, and has a reader that knows where it ended.
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

/// A file that packets are written to.
#[derive(Debug)]
pub struct Pcap {
    file: BufWriter<Batches>,
    /// One packet with its header: only whole ones get to the file, also when the process is killed.
    record: Vec<u8>,
    /// The first error, until it is told.
    error: Option<io::Error>,
    /// There was one: nothing is written any more.
    broken: bool,
}

impl Pcap {
    /// Makes the file. A pipe or a device that is there is written to: `wireshark -k -i PIPE` reads while it is written.
    ///
    /// # Errors
    /// If there is a file already, or what the system says.
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

    /// Adds a packet, with the time of now.
    pub fn write(&mut self, envelope: &Envelope, transport: &[u8]) {
        if !self.broken {
            self.error = self.try_write(envelope, transport).err();
            self.broken = self.error.is_some();
        }
    }

    /// Adds a packet that is there from its IP header on.
    pub fn write_packet(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.error = self.try_write_bytes(&[], bytes).err();
            self.broken = self.error.is_some();
        }
    }

    /// The error after which nothing is written any more; told once.
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

    /// Writes out what is held back.
    ///
    /// # Errors
    /// The first error of any write, unless it was told.
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
        // Whoever wants to know calls `finish`.
        let _ = self.file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_written_over() {
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
    fn a_full_disk_is_told_once() {
        let full = || Pcap::create(Path::new("/dev/full")).unwrap();
        let envelope = Envelope::plain([127, 0, 0, 1].into(), 50_000, [127, 0, 0, 2].into()).unwrap();
        let mut pcap = full();
        (0..100).for_each(|_| pcap.write(&envelope, &[7; 1000]));
        assert_eq!(pcap.next_error().unwrap().kind(), io::ErrorKind::StorageFull);
        pcap.write(&envelope, &[7; 1000]);
        assert!(pcap.next_error().is_none() && pcap.finish().is_ok());
        // What is held back is not written yet, and is not lost in silence either.
        let mut pcap = full();
        pcap.write(&envelope, &[7; 100]);
        assert!(pcap.next_error().is_none());
        assert_eq!(pcap.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
