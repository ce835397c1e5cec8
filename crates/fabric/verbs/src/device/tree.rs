//! A tree like the kernel's, for tests.

use std::fs;
use std::path::PathBuf;

/// It is gone at the end.
pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    /// Files with a line of text in each.
    pub(super) fn new(name: &str, files: &[(&str, &str)]) -> Tree {
        let root = std::env::temp_dir().join(format!("stentor-sys-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        Tree(root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
