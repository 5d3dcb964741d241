//! Reading files that hold secrets, which others must not be able to read.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleet_http::Token;

/// Of a mode: what only the owner may do.
pub(crate) const OWNER_ALONE: u32 = 0o077;

/// Of a mode: what owner and group may do.
pub(crate) const GROUP_MAY: u32 = 0o007;

/// How large a file of secrets may be. It may be a pipe or a device, too, which never ends.
const MOST_BYTES: u64 = 1 << 20;

/// Reads a file that others may do nothing with: `others` are the bits that its mode must not have.
pub(crate) fn read(path: &Path, others: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mode = File::open(path).and_then(|mut file| {
        file.by_ref().take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        file.metadata().map(|found| found.permissions().mode() & 0o777)
    });
    match mode {
        Err(error) => Err(error.to_string()),
        Ok(mode) if mode & others != 0 => Err(format!(
            "others can get at it (its mode is {mode:04o}): write \"chmod {:04o} {}\"",
            mode & !others & 0o600,
            path.display()
        )),
        Ok(_) if bytes.len() as u64 > MOST_BYTES => {
            Err(format!("it has more than {} KiB: that is no secret", MOST_BYTES >> 10))
        }
        Ok(_) => Ok(bytes),
    }
}

/// The first token of a file of tokens that is there as it is, and not as a hash. One that may only
/// read will do: daemons do nothing else with each other.
pub(crate) fn first_token(text: &str) -> Option<Token> {
    let said = text.lines().map(str::trim);
    let bare = said.map(|line| line.strip_prefix("read:").unwrap_or(line));
    bare.map(str::trim_start).find_map(|line| line.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_read_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "a").unwrap();
        let with_mode = |mode: u32, others: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
            read(&path, others)
        };
        assert_eq!(with_mode(0o600, OWNER_ALONE), Ok(b"a".to_vec()));
        assert_eq!(with_mode(0o640, GROUP_MAY), Ok(b"a".to_vec()));
        let error = with_mode(0o644, OWNER_ALONE).unwrap_err();
        let remedy = format!("write \"chmod 0600 {}\"", path.display());
        assert!(error.starts_with("others can get at it (its mode is 0644)"), "{error}");
        assert!(error.ends_with(&remedy), "{error}");
        assert!(with_mode(0o640, OWNER_ALONE).is_err());
        assert!(with_mode(0o604, GROUP_MAY).is_err());
    }

    #[test]
    fn what_never_ends_is_not_read_to_its_end() {
        let error = read(Path::new("/dev/zero"), 0).unwrap_err();
        assert_eq!(error, "it has more than 1024 KiB: that is no secret");
    }

    #[test]
    fn the_first_plain_token_is_taken() {
        let text = "# of all\n\nsha256:00\n the-first-of-the-tokens\nthe-second-of-the-tokens\n";
        assert_eq!(first_token(text), Some("the-first-of-the-tokens".parse().unwrap()));
        assert_eq!(first_token("# nothing\n"), None);
        let reader = first_token("read:the-token-of-the-display\nthe-other-one-of-them\n");
        assert_eq!(reader, Some("the-token-of-the-display".parse().unwrap()));
    }
}
