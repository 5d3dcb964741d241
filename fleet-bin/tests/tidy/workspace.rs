//! Cargo's view of the workspace: crates, dependencies and targets.

use std::sync::LazyLock;

use cargo_metadata::{Metadata, MetadataCommand, Target};

use crate::tree::top;

static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let manifest = top().join("Cargo.toml");
    let command = MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    command.expect("cargo can describe the workspace that it builds")
});

/// The members of the workspace with their declared dependencies.
pub(crate) fn metadata() -> &'static Metadata {
    &METADATA
}

/// Every target of every member, with the path of its root file relative to the checkout.
pub(crate) fn targets() -> impl Iterator<Item = (&'static Target, String)> {
    let all = metadata().packages.iter().flat_map(|package| &package.targets);
    all.filter_map(|target| {
        let root = target.src_path.strip_prefix(&metadata().workspace_root).ok()?;
        Some((target, root.to_string()))
    })
}
