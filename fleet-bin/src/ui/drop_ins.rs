//! Drop-ins beside unit files.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fleet_unitfile::tree::drop_in_directories;
use fleet_unitfile::{UnitName, UnitType};

use super::error::CliError;
use super::unit_text::read;

/// Reads the drop-ins that may belong to a unit, each with its path relative to the folder of the
/// unit file.
pub(super) fn drop_ins_of(
    name: &UnitName,
    path: &Path,
) -> Result<Vec<(String, Vec<u8>)>, CliError> {
    let mut all = Vec::new();
    for folder in drop_in_folders(name) {
        for file in drop_ins_in(&path.with_file_name(&folder))? {
            let path = path.with_file_name(&folder).join(&file);
            let Some(file) = file.to_str().filter(|it| !it.contains(char::is_control)) else {
                let error = format!("the name of drop-in {} is not printable", path.display());
                return Err(CliError::failed(error).help("rename the file"));
            };
            let source = read(&path)?.ok_or_else(|| missing(&path))?;
            all.push((format!("{folder}/{file}"), source));
        }
    }
    Ok(all)
}

/// Returns the names of the folders with drop-ins of a unit.
fn drop_in_folders(name: &UnitName) -> Vec<String> {
    let mut folders = drop_in_directories(name);
    folders.push(format!("{}.d", name.unit_type()));
    folders
}

/// Returns the names of the drop-ins in a folder; none if there is no such folder.
fn drop_ins_in(folder: &Path) -> Result<Vec<OsString>, CliError> {
    let cannot =
        |error| CliError::failed(format!("cannot read {}", folder.display())).because(error);
    let entries = match folder.read_dir() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(cannot)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if !is_hidden && name.as_encoded_bytes().ends_with(b".conf") && !entry.path().is_dir() {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the drop-ins in a folder such as `web.service.d` or `service.d`, in order; `None` for
/// any other path.
///
/// # Errors
///
/// The folder cannot be read.
pub(crate) fn drop_in_files(folder: &Path) -> Result<Option<Vec<PathBuf>>, CliError> {
    if drop_in_folder(folder).as_deref() != Some(folder) {
        return Ok(None);
    }
    let files = drop_ins_in(folder)?.into_iter();
    Ok(Some(files.map(|file| folder.join(file)).collect()))
}

/// Returns the path itself if it is a folder of drop-ins, or its folder if it is a drop-in.
pub(crate) fn drop_in_folder(path: &Path) -> Option<PathBuf> {
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().filter(|_| path.extension().is_some_and(|it| it == "conf"))?,
    };
    let unit = folder.file_name()?.to_str()?.strip_suffix(".d")?;
    let is_drop_ins = UnitName::parse(unit).is_ok() || unit.parse::<UnitType>().is_ok();
    is_drop_ins.then(|| folder.to_owned())
}

/// Whether the drop-ins in a folder can belong to the unit with a file at this path.
pub(crate) fn has_drop_ins_in(name: &UnitName, path: &Path, folder: &Path) -> bool {
    let plain = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_owned();
    let folder = plain(folder);
    drop_in_folders(name).iter().any(|it| plain(&path.with_file_name(it)) == folder)
}

/// Returns the folders with drop-ins named after a unit or its template.
///
/// # Errors
///
/// Such a folder cannot be read.
pub(crate) fn own_drop_ins(name: &UnitName, path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let units = [Some(name.clone()), name.template()].into_iter().flatten();
    let mut folders = Vec::new();
    for folder in units.map(|unit| path.with_file_name(format!("{unit}.d"))) {
        if !drop_ins_in(&folder)?.is_empty() {
            folders.push(folder);
        }
    }
    Ok(folders)
}

/// Returns the folders with drop-ins in a folder that no unit file in it uses. Drop-ins of all
/// units of a type do not count, and drop-ins of an instance belong to the file of its template.
///
/// # Errors
///
/// The folder cannot be read.
pub(crate) fn orphaned_folders(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let cannot =
        |error| CliError::failed(format!("cannot read {}", folder.display())).because(error);
    let (mut units, mut drop_ins) = (Vec::new(), Vec::new());
    for entry in folder.read_dir().map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let unit = name.strip_suffix(".d").and_then(|unit| UnitName::parse(unit).ok());
        if let Some(unit) = unit.filter(|_| path.is_dir()) {
            drop_ins.push((unit, path));
        } else if let Ok(unit) = UnitName::parse(name) {
            units.push(unit);
        }
    }
    let mut orphans = Vec::new();
    for (unit, path) in drop_ins {
        let has_file = units.iter().any(|it| Some(it) == unit.template().as_ref())
            || units.iter().any(|it| has_drop_ins_in(it, &folder.join(it.as_str()), &path));
        if !has_file && !drop_ins_in(&path)?.is_empty() {
            orphans.push(path);
        }
    }
    orphans.sort();
    Ok(orphans)
}

fn missing(path: &Path) -> CliError {
    CliError::failed(format!("cannot read {}: it is a broken link", path.display()))
        .help("remove the link, or link it to /dev/null to mask the drop-in")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_drop_ins_are_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (path, text) in [
            ("web.service.d/a.conf", "[Service]\n"),
            ("db.service.d/a.conf", "[Service]\n"),
            ("job@1.service.d/a.conf", "[Service]\n"),
            ("app-.service.d/a.conf", "[Service]\n"),
            ("service.d/a.conf", "[Service]\n"),
            ("none.service.d/README", ""),
            ("other.d/a.conf", ""),
        ] {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        }
        for unit in ["web.service", "job@.service", "app-one.service"] {
            std::fs::write(at(unit), "[Service]\n").unwrap();
        }
        assert_eq!(orphaned_folders(folder.path()).unwrap(), [at("db.service.d")]);
        for (path, expected) in [
            ("web.service.d", Some("web.service.d")),
            ("web.service.d/a.conf", Some("web.service.d")),
            ("service.d", Some("service.d")),
            ("other.d", None),
            ("web.service", None),
        ] {
            assert_eq!(drop_in_folder(&at(path)), expected.map(at), "{path}");
        }
        std::os::unix::fs::symlink("none", at("web.service.d/b.conf")).unwrap();
        let name = "web.service".parse().unwrap();
        let error = drop_ins_of(&name, &at("web.service")).unwrap_err();
        assert!(error.to_string().ends_with("b.conf: it is a broken link"), "{error}");
        std::fs::rename(at("web.service.d/b.conf"), at("web.service.d/b\n.conf")).unwrap();
        let error = drop_ins_of(&name, &at("web.service")).unwrap_err();
        assert!(error.to_string().ends_with("is not printable"), "{error}");
    }
}
