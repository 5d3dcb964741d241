//! Reading of secret files, which must not be accessible to other users.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleet_http::Token;

/// Mode bits that must not be set for a file that only its owner may access.
pub(crate) const OWNER_ONLY: u32 = 0o077;

/// Mode bits that must not be set for a file that only its owner and its group may access.
pub(crate) const OWNER_AND_GROUP: u32 = 0o007;

/// Largest accepted secret file, in bytes. Without this limit, a path that names a device or an
/// endless pipe would fill the memory.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file. Returns an error if it cannot be read, is too large, or has any of the mode bits
/// in `others`.
pub(crate) fn read(path: &Path, others: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mode = File::open(path).and_then(|mut file| {
        file.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        file.metadata().map(|metadata| metadata.permissions().mode() & 0o777)
    });
    check_mode(path, mode.map_err(|error| error.to_string())?, others)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {} KiB, the limit of a secret file", MAX_BYTES >> 10));
    }
    Ok(bytes)
}

/// Returns an error if the mode of a file has any of the bits in `others`.
pub(crate) fn check_mode(path: &Path, mode: u32, others: u32) -> Result<(), String> {
    if mode & others == 0 {
        return Ok(());
    }
    Err(format!(
        "other users can access it (mode {mode:04o}): run \"chmod {:04o} {}\"",
        mode & !others & 0o600,
        path.display()
    ))
}

/// Returns the first plain-text token in the text of a token file; hashed tokens are skipped. A
/// token with the prefix `read:` is also returned, without the prefix. Such a token is enough for
/// daemons, which send only read requests to each other.
pub(crate) fn first_token(text: &str) -> Option<Token> {
    let lines = text.lines().map(str::trim);
    let plain = lines.map(|line| line.strip_prefix("read:").unwrap_or(line));
    plain.map(str::trim_start).find_map(|line| line.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_readable_by_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "a").unwrap();
        let with_mode = |mode: u32, others: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
            read(&path, others)
        };
        assert_eq!(with_mode(0o600, OWNER_ONLY), Ok(b"a".to_vec()));
        assert_eq!(with_mode(0o640, OWNER_AND_GROUP), Ok(b"a".to_vec()));
        let error = with_mode(0o644, OWNER_ONLY).unwrap_err();
        let remedy = format!("run \"chmod 0600 {}\"", path.display());
        assert!(error.starts_with("other users can access it (mode 0644)"), "{error}");
        assert!(error.ends_with(&remedy), "{error}");
        assert!(with_mode(0o640, OWNER_ONLY).is_err());
        assert!(with_mode(0o604, OWNER_AND_GROUP).is_err());
    }

    #[test]
    fn endless_file_is_refused() {
        let error = read(Path::new("/dev/zero"), 0).unwrap_err();
        assert_eq!(error, "larger than 1024 KiB, the limit of a secret file");
    }

    #[test]
    fn first_plain_token_is_used() {
        let text = "# of all\n\nsha256:00\n the-first-of-the-tokens\nthe-second-of-the-tokens\n";
        assert_eq!(first_token(text), Some("the-first-of-the-tokens".parse().unwrap()));
        assert_eq!(first_token("# nothing\n"), None);
        let reader = first_token("read:the-token-of-the-display\nthe-other-one-of-them\n");
        assert_eq!(reader, Some("the-token-of-the-display".parse().unwrap()));
    }
}
