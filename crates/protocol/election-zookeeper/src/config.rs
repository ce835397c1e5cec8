//! Configuration of an election by ZooKeeper.

use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// Members of the group, and the ensemble that they use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZookeeperConfig {
    /// This process.
    pub me: ProcessId,
    /// Members of the group.
    pub members: Vec<ProcessId>,
    /// Addresses of the ensemble's servers, each as `host:port`.
    pub servers: Vec<String>,
    /// Path under which all nodes of this cluster lie, such as `/stentor/example`. It is created if it is missing.
    pub root: String,
    /// Name of the group, which is a node under `<root>/election`.
    pub group: String,
    /// Time after which a silent process loses its place in the line. The servers may enforce another value; by default
    /// they allow between 2 and 20 of their ticks.
    pub session_timeout: Duration,
    /// Epochs that this process announces are larger than this one.
    pub floor: u64,
}

impl ZookeeperConfig {
    /// Lower bound of `session_timeout`.
    pub const MIN_SESSION: Duration = Duration::from_millis(50);
    /// Upper bound of `session_timeout`.
    pub const MAX_SESSION: Duration = Duration::from_secs(600);

    /// Returns a configuration with a session timeout of 2 s.
    #[must_use]
    pub fn new(me: ProcessId, members: &[ProcessId], servers: &[&str], root: &str, group: &str) -> Self {
        ZookeeperConfig {
            me,
            members: members.to_vec(),
            servers: servers.iter().map(|&server| server.to_owned()).collect(),
            root: root.to_owned(),
            group: group.to_owned(),
            session_timeout: Duration::from_secs(2),
            floor: 0,
        }
    }

    /// Returns the path of the group's node, whose children are the line of candidates.
    pub(crate) fn path(&self) -> String {
        format!("{}/election/{}", self.root, self.group)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.members.contains(&self.me) {
            return Err(ConfigError::NotAMember { process: self.me });
        }
        if self.servers.is_empty() {
            return Err(ConfigError::NoServers);
        }
        for server in &self.servers {
            check_server(server).map_err(|why| ConfigError::Server { server: server.clone(), why })?;
        }
        check_root(&self.root).map_err(|why| ConfigError::Root { root: self.root.clone(), why })?;
        check_name(&self.group).map_err(|why| ConfigError::Group { group: self.group.clone(), why })?;
        if !(Self::MIN_SESSION..=Self::MAX_SESSION).contains(&self.session_timeout) {
            return Err(ConfigError::Session { timeout: self.session_timeout });
        }
        Ok(())
    }
}

fn check_server(server: &str) -> Result<(), &'static str> {
    if server.contains(['/', ',']) || server.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("it must be one address, without scheme, path or list");
    }
    let (host, port) = server.rsplit_once(':').ok_or("the port is missing, for example 2181")?;
    let bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    if host.is_empty() || (host.contains([':', '[', ']']) && !bracketed) {
        return Err("the host is missing, or an IPv6 address without brackets");
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => Err("the port is no number from 1 to 65535"),
        Ok(_) => Ok(()),
    }
}

fn check_root(root: &str) -> Result<(), &'static str> {
    let names = root.strip_prefix('/').ok_or("it must begin with '/'")?;
    if names == "zookeeper" || names.starts_with("zookeeper/") {
        return Err("/zookeeper belongs to the servers");
    }
    names.split('/').try_for_each(check_name)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 128 {
        return Err("every name in it must have 1 to 128 bytes, without '/' at the end");
    }
    if name == "." || name == ".." {
        return Err("'.' and '..' are not permitted");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err("only letters, digits, '.', '_' and '-' are permitted in a name");
    }
    Ok(())
}

/// Reason why a configuration is invalid.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// This process is not a member of the group.
    #[error("{process} is not among the members: only they take part in the election")]
    NotAMember {
        /// This process.
        process: ProcessId,
    },
    /// The configuration names no server.
    #[error("no ZooKeeper server is named: name at least one, for example 127.0.0.1:2181")]
    NoServers,
    /// A server's address is malformed.
    #[error("ZooKeeper server {server:?}: {why}")]
    Server {
        /// Configured address.
        server: String,
        /// Reason why the address is malformed.
        why: &'static str,
    },
    /// The root path is malformed.
    #[error("ZooKeeper root {root:?}: {why}")]
    Root {
        /// Configured path.
        root: String,
        /// Reason why the path is malformed.
        why: &'static str,
    },
    /// The group's name is malformed.
    #[error("group {group:?} cannot name a node: {why}")]
    Group {
        /// Configured name.
        group: String,
        /// Reason why the name is malformed.
        why: &'static str,
    },
    /// The session timeout is too short or too long.
    #[error(
        "a session of {timeout:?}: it must be between {:?} and {:?}",
        ZookeeperConfig::MIN_SESSION,
        ZookeeperConfig::MAX_SESSION
    )]
    Session {
        /// Configured timeout.
        timeout: Duration,
    },
    /// The operating system refused to create a thread.
    #[error("no thread for the election: {why}: raise the limit of threads")]
    Thread {
        /// Error of the operating system.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ZookeeperConfig {
        ZookeeperConfig::new(ProcessId(0), &[ProcessId(0)], &["127.0.0.1:2181", "[::1]:2181"], "/a/b", "g1")
    }

    #[test]
    fn valid_configurations_pass() {
        assert_eq!(config().check(), Ok(()));
        assert_eq!(config().path(), "/a/b/election/g1");
    }

    #[test]
    fn invalid_configurations_are_refused_by_name() {
        let refused = |change: &dyn Fn(&mut ZookeeperConfig)| {
            let mut config = config();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(&|c| c.me = ProcessId(3)).contains("p3 is not among the members"));
        assert!(refused(&|c| c.servers.clear()).contains("no ZooKeeper server"));
        for server in
            ["", "host", "host:", ":2181", "host:0", "host:65536", "a:1,b:2", "a:1/x", "tcp://a:1", "::1:2", "a b:1"]
        {
            let text = refused(&|c| c.servers.push(server.into()));
            assert!(text.contains(&format!("{server:?}")), "{text}");
        }
        for root in ["", "/", "a", "/a/", "//a", "/a/../b", "/a b", "/a/\u{1}", "/zookeeper", "/zookeeper/x", "/ü"] {
            let text = refused(&|c| c.root = root.into());
            assert!(text.contains(&format!("root {root:?}")), "{text}");
        }
        for group in ["", ".", "..", "a/b", "g\n", &"x".repeat(129)] {
            assert!(refused(&|c| c.group = group.into()).contains("cannot name a node"), "{group}");
        }
        for timeout in [Duration::ZERO, Duration::from_secs(601)] {
            assert!(refused(&|c| c.session_timeout = timeout).contains("a session of"));
        }
    }
}
