//! Reading a file that a person names. A named pipe, a device or a socket would block or never end, so only regular files
//! are read, and no more of them than a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file that is read whole.
pub const MAX_BYTES: u64 = 1 << 30;

/// Opens a regular file.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the path leads to anything else, such as a named pipe, and any error of the system.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    // Opening a named pipe waits for a writer without this.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    // Of the open file, since another one may have been put in its place meanwhile.
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file, but a pipe, a device or a socket; write what it gives into a file first",
        ));
    }
    Ok(file)
}

/// The bytes of a regular file.
///
/// # Errors
/// Those of [`open`], and [`io::ErrorKind::FileTooLarge`] above [`MAX_BYTES`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    bounded(open(path)?, MAX_BYTES)
}

/// The text of a regular file.
///
/// # Errors
/// Those of [`read`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        let reason = "stream did not contain valid UTF-8";
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// All that there is to read, up to a limit.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] above the limit, and any error of the reader.
pub fn bounded(from: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more, to tell an input of exactly the limit from a longer one.
    from.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {} MiB", max_bytes >> 20),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_file_is_read_whole_and_a_folder_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "text");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(
            read_to_string(&path).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert!(read(folder.path()).is_err());
        let missing = read(&folder.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_limit_is_a_limit() {
        assert_eq!(bounded(&b"four"[..], 4).unwrap(), b"four");
        let error = bounded(&b"fives"[..], 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link, Path::new("/dev/zero"), Path::new("/dev/null")] {
            let error = open(path).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
        }
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(&socket).is_err());
    }
}
