//! How the file of a log gives room back, and where what is left of it begins.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The most that is read at once.
pub(super) const BLOCK: u64 = 64 * 1024;

/// The largest blocks that file systems have.
pub(super) const LARGEST_BLOCK: u64 = 16 << 20;

/// Makes a hole of all before a place of a file, and tells whether the file system knows holes.
///
/// Nothing moves, and the file stays as long as it is: who appends to it meanwhile notices nothing.
pub(super) fn punch_hole(file: &File, before: u64) -> io::Result<bool> {
    // From the beginning: a block that an earlier hole has left in part becomes free with it.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, 0, before) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        given => Ok(given.map(|()| true)?),
    }
}

/// Where what is kept of a file begins, if there is a hole before it.
pub(super) fn data_start(file: &mut File) -> io::Result<u64> {
    let kept = match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(0)) {
        // Nothing but a hole, or nothing at all.
        Err(Errno::NXIO) => return Ok(file.metadata()?.len()),
        // Who cannot tell where holes are has none.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(0),
        kept => kept?,
    };
    // A hole that ends within a block is zeros there.
    file.seek(SeekFrom::Start(kept))?;
    let (mut zeros, mut block) = (0, Vec::new());
    while zeros < LARGEST_BLOCK {
        block.clear();
        let read = file.take(BLOCK).read_to_end(&mut block)?;
        if let Some(first) = block.iter().position(|&byte| byte != 0) {
            return Ok(kept + zeros + first as u64);
        }
        zeros += read as u64;
        if read == 0 {
            break;
        }
    }
    Ok(kept + zeros)
}

/// Where the first line begins after a place; the place, if the line that it is in is longer than
/// a block.
pub(super) fn next_line(file: &mut File, place: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(place))?;
    let mut block = Vec::new();
    file.take(BLOCK).read_to_end(&mut block)?;
    let newline = block.iter().position(|&byte| byte == b'\n');
    Ok(place + newline.map_or(0, |newline| newline as u64 + 1))
}

/// Where the line begins that goes on at a place; a place within it, if it is longer than a block.
pub(super) fn start_of_line(file: &mut File, place: u64) -> io::Result<u64> {
    let start = place.saturating_sub(BLOCK);
    file.seek(SeekFrom::Start(start))?;
    let mut block = Vec::new();
    file.take(place - start).read_to_end(&mut block)?;
    let newline = block.iter().rposition(|&byte| byte == b'\n');
    Ok(start + newline.map_or(0, |newline| newline as u64 + 1))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_left_begins_where_the_hole_ends() {
        let mut file = tempfile::tempfile().expect("it can be made");
        assert_eq!(data_start(&mut file).expect("it can be read"), 0);
        file.write_all(&b"0123456\n".repeat(2000)).expect("it can be written");
        assert_eq!(data_start(&mut file).expect("it can be read"), 0);
        for place in [8, 4096, 8000, 8000, 12_296, 16_000] {
            if !punch_hole(&file, place).expect("it can be done") {
                return;
            }
            assert_eq!(data_start(&mut file).expect("it can be read"), place);
            assert_eq!(file.metadata().expect("it is there").len(), 16_000);
        }
    }

    #[test]
    fn a_hole_that_ends_in_a_large_block_is_passed() {
        let mut file = tempfile::tempfile().expect("it can be made");
        for (zeros, place) in [(128 << 10, 128 << 10), (0, 128 << 10)] {
            file.write_all(&vec![0; zeros]).and_then(|()| file.write_all(b"one\n")).expect("room");
            assert_eq!(data_start(&mut file).expect("it can be read"), place);
        }
        let mut zeros = tempfile::tempfile().expect("it can be made");
        zeros.write_all(&[0; 100]).expect("there is room");
        assert_eq!(data_start(&mut zeros).expect("it can be read"), 100);
    }

    #[test]
    fn lines_around_a_place() {
        let mut file = tempfile::tempfile().expect("it can be made");
        file.write_all(b"one\ntwo\nthree").expect("it can be written");
        for (place, start, next) in [(0, 0, 4), (3, 0, 4), (4, 4, 8), (6, 4, 8), (9, 8, 9)] {
            assert_eq!(start_of_line(&mut file, place).expect("it is read"), start, "{place}");
            assert_eq!(next_line(&mut file, place).expect("it is read"), next, "{place}");
        }
    }
}
