//! The output of `cargo metadata` about the workspace and its dependencies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo::{Context, capture};
use crate::source::{Source, rust_files};

/// The workspace and all resolved packages.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// All packages, dependencies included.
    pub packages: Vec<Package>,
    /// The directory of cargo's final build products.
    pub target_directory: PathBuf,
    /// The directory of cargo's intermediate build products. `None` before Rust 1.91.
    pub build_directory: Option<PathBuf>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

/// A package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Cargo's identifier of this version from this source.
    pub id: String,
    /// The package's name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The package's licence, an SPDX expression.
    pub license: Option<String>,
    /// The source of the package, or `None` for packages of this workspace.
    pub source: Option<String>,
    /// The declared dependencies.
    pub dependencies: Vec<Dependency>,
    /// The libraries, binaries and tests.
    pub targets: Vec<Target>,
    /// The features.
    pub features: BTreeMap<String, Vec<String>>,
    manifest_path: PathBuf,
}

/// A dependency as the manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// Name of the package.
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// The directory of the dependency if it is a package of this workspace.
    pub path: Option<PathBuf>,
}

/// A library, binary, test, example or benchmark.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// The target's name.
    pub name: String,
    /// `lib`, `bin`, `proc-macro`, `test` …
    pub kind: Vec<String>,
    /// The target's root file.
    pub src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
    target: Option<String>,
}

impl EdgeKind {
    /// Returns whether the dependency is linked into a default build: it is a normal dependency, and not one that only
    /// the loom tests need.
    fn is_linked(&self) -> bool {
        self.kind.is_none() && self.target.as_deref() != Some("cfg(loom)")
    }
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub(crate) fn load(context: &Context) -> Result<Self> {
        Workspace::asked(&mut context.cargo(["metadata", "--format-version", "1"]))
    }

    /// Runs `cargo metadata` with all features, so that packages which only an optional feature needs are included.
    pub(crate) fn load_all_features(context: &Context) -> Result<Self> {
        Workspace::asked(&mut context.cargo(["metadata", "--all-features", "--format-version", "1"]))
    }

    fn asked(command: &mut Command) -> Result<Self> {
        let (good, text) = capture(command)?;
        if !good {
            bail!("`cargo metadata` failed; its message is above");
        }
        Workspace::parse(&text)
    }

    /// Parses the output of `cargo metadata`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("cannot parse the output of `cargo metadata`")
    }

    /// Returns the packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Returns the member of this name.
    pub(crate) fn member(&self, name: &str) -> Result<&Package> {
        self.members().find(|package| package.name == name).with_context(|| format!("there is no crate {name}"))
    }

    /// Returns all packages that are linked with a package, without the package itself. Procedural macros run in the
    /// compiler and are not included.
    pub(crate) fn linked_with(&self, package: &Package) -> Vec<&Package> {
        let mut found: Vec<&Package> = Vec::new();
        let mut to_do = vec![package.id.as_str()];
        while let Some(id) = to_do.pop() {
            let edges = self.resolve.nodes.iter().filter(|node| node.id == id).flat_map(|node| &node.deps);
            for edge in edges.filter(|edge| edge.dep_kinds.iter().any(EdgeKind::is_linked)) {
                let Some(next) = self.packages.iter().find(|package| package.id == edge.pkg) else { continue };
                if !next.is_macro() && found.iter().all(|seen| seen.id != next.id) {
                    found.push(next);
                    to_do.push(&next.id);
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

impl Package {
    /// Returns the directory of the manifest.
    pub(crate) fn directory(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }

    /// Returns all Rust files of the package, including tests.
    pub(crate) fn sources(&self, context: &Context) -> Result<Vec<Source>> {
        rust_files(&context.root, self.directory())
    }

    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}
