//! Files that are replaced as a whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file, or makes it. Whatever happens meanwhile, it holds what it held before or what
/// it is given. With `sync` it survives the machine once this has returned.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_data()?;
    }
    drop(file);
    std::fs::rename(&aside, path)?;
    match path.parent() {
        Some(directory) if sync => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}
