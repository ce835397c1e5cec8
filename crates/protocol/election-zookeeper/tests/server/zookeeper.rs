//! A ZooKeeper ensemble of one server on loopback, with its own port and directory.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Directory of the Debian package's Java archives.
const JARS: &str = "/usr/share/java";
/// Archives of the server.
const SERVER: [&str; 2] = ["zookeeper.jar", "zookeeper-jute.jar"];
/// Prefixes of the names of the archives that the server needs.
const NEEDED: [&str; 5] = ["slf4j-api", "slf4j-simple", "metrics-core", "netty-", "snappy-java"];
/// Tick of the server. It checks sessions at this interval.
pub(crate) const TICK: Duration = Duration::from_millis(100);
const READY: Duration = Duration::from_secs(60);

pub(crate) struct Zookeeper {
    child: Option<Child>,
    port: u16,
    directory: PathBuf,
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn class_path() -> String {
    let installed = SERVER.iter().all(|jar| Path::new(JARS).join(jar).exists());
    assert!(installed, "ZooKeeper is not installed: apt-get install zookeeper default-jre-headless");
    let all = fs::read_dir(JARS).expect("the Java archives");
    let names = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let needed = names.filter(|name| SERVER.contains(&&**name) || NEEDED.iter().any(|start| name.starts_with(start)));
    needed.map(|name| format!("{JARS}/{name}")).collect::<Vec<_>>().join(":")
}

impl Zookeeper {
    pub(crate) fn start() -> Self {
        Self::on(free_port())
    }

    pub(crate) fn on(port: u16) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("stentor-zookeeper-{}-{number}", std::process::id()));
        let mut server = Zookeeper { child: None, port, directory };
        fs::create_dir_all(&server.directory).expect("a directory for the server");
        server.run();
        server
    }

    fn run(&mut self) {
        let data = self.directory.join("data");
        let text = format!(
            "tickTime={}\nminSessionTimeout=100\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={}\n\
             clientPortAddress=127.0.0.1\n4lw.commands.whitelist=*\nadmin.enableServer=false\nmaxClientCnxns=0\n",
            TICK.as_millis(),
            data.display(),
            self.port
        );
        let file = self.directory.join("zoo.cfg");
        fs::create_dir_all(&data).and_then(|()| fs::write(&file, text)).expect("a configuration for the server");
        let log = fs::File::create(self.directory.join("log")).expect("a log for the server");
        let child = Command::new("java")
            .args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path()])
            .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("cannot start java ({error}): apt-get install zookeeper default-jre-headless")
        });
        self.child = Some(child);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let begin = Instant::now();
        while self.ask("ruok").is_none_or(|answer| answer != "imok") {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok()?);
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "ZooKeeper ended with {ended:?}:\n{}", log());
            assert!(begin.elapsed() < READY, "ZooKeeper is not ready after {READY:?}:\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a four-letter command and returns the answer.
    pub(crate) fn ask(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Returns the watched paths under `root`, and the number of sessions that watch each.
    pub(crate) fn watches(&self, root: &str) -> Vec<(String, usize)> {
        let mut found: Vec<(String, usize)> = Vec::new();
        for line in self.ask("wchp").expect("the watches").lines() {
            if line.starts_with('/') {
                found.push((line.to_owned(), 0));
            } else if let Some((_, watchers)) = found.last_mut().filter(|_| line.starts_with('\t')) {
                *watchers += 1;
            }
        }
        found.retain(|(path, _)| path.starts_with(root));
        found
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the process. The server keeps its connections and answers nothing.
    pub(crate) fn stop(&self) {
        let server = self.child.as_ref().expect("a running server");
        kill_process(Pid::from_child(server), Signal::STOP).expect("a server that can be stopped");
    }

    /// Kills the server and starts it again with the same data.
    pub(crate) fn restart(mut self) -> Self {
        self.kill();
        self.run();
        self
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
