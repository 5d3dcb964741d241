//! BPF programs: their instructions, and the system call that loads and attaches them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::libc;

/// An instruction, as the kernel encodes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// Destination in the lower four bits, source in the others.
    registers: u8,
    pub(super) offset: i16,
    pub(super) value: i32,
}

pub(super) const R0: u8 = 0;
pub(super) const R1: u8 = 1;
pub(super) const R2: u8 = 2;
pub(super) const R3: u8 = 3;
pub(super) const R4: u8 = 4;
pub(super) const R5: u8 = 5;
/// Keeps its value over calls.
pub(super) const R6: u8 = 6;
/// End of the stack.
pub(super) const R10: u8 = 10;

pub(super) const EXIT: Instruction = Instruction { code: 0x95, registers: 0, offset: 0, value: 0 };

pub(super) const fn instruction(
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    value: i32,
) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, value }
}

/// `to = value`
pub(super) const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}

/// `to = from`
pub(super) const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

/// `to += value`
pub(super) const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}

/// `to &= value`, in 32 bits
pub(super) const fn mask(to: u8, value: i32) -> Instruction {
    instruction(0x54, to, 0, 0, value)
}

/// `to >>= value`
pub(super) const fn shift_right(to: u8, value: i32) -> Instruction {
    instruction(0x77, to, 0, 0, value)
}

/// `to = *(u32 *)(from + offset)`
pub(super) const fn read(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}

/// Skips to the end of the rule unless `register == value`, in 32 bits.
pub(super) const fn require(register: u8, value: i32) -> Instruction {
    instruction(0x56, register, 0, 0, value)
}

/// Skips to the end of the rule unless the registers are equal.
pub(super) const fn require_equal(one: u8, other: u8) -> Instruction {
    instruction(0x5d, one, other, 0, 0)
}

/// Calls a function of the kernel.
pub(super) const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}

/// A type of program, and the place to which it is attached.
#[derive(Clone, Copy)]
pub(super) struct Hook {
    program_type: u32,
    attach_type: u32,
}

pub(super) const INGRESS: Hook = Hook { program_type: 8, attach_type: 0 };
pub(super) const EGRESS: Hook = Hook { program_type: 8, attach_type: 1 };
pub(super) const DEVICES: Hook = Hook { program_type: 15, attach_type: 6 };

/// Commands of the system call.
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_QUERY: libc::c_int = 16;

/// Programs of several owners, such as those of a container runtime in the unit, work together.
const ALLOW_MULTI: u32 = 2;

/// Attributes of `PROG_LOAD`, up to the last one that is used.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// Attributes of `PROG_ATTACH`.
#[repr(C)]
#[derive(Default)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// Attributes of `PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct QueryAttributes {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

/// Attaches a program to a group that has none at this hook.
pub(super) fn attach_once(
    group: BorrowedFd<'_>,
    hook: Hook,
    program: impl FnOnce() -> io::Result<Vec<Instruction>>,
) -> io::Result<()> {
    let target = group.as_raw_fd().cast_unsigned();
    let mut query =
        QueryAttributes { target, attach_type: hook.attach_type, ..QueryAttributes::default() };
    bpf(PROG_QUERY, &mut query)?;
    if query.count > 0 {
        return Ok(());
    }
    let loaded = load(hook, &program()?)?;
    let mut attributes = AttachAttributes {
        target,
        program: loaded.as_raw_fd().cast_unsigned(),
        attach_type: hook.attach_type,
        flags: ALLOW_MULTI,
    };
    // The group keeps the program until it is removed.
    bpf(PROG_ATTACH, &mut attributes).map(drop)
}

pub(super) fn load(hook: Hook, program: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let mut attributes = LoadAttributes {
        program_type: hook.program_type,
        count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        ..LoadAttributes::default()
    };
    let descriptor = bpf(PROG_LOAD, &mut attributes)?;
    // SAFETY: the kernel has just returned this descriptor, with close-on-exec set, and nothing
    // else owns it.
    #[expect(unsafe_code, reason = "the descriptor comes from a system call")]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Calls `bpf`. The attributes are one of the structures above.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let size = libc::c_uint::try_from(size_of::<T>()).unwrap_or(libc::c_uint::MAX);
    // SAFETY: the kernel reads and writes at most `size` bytes of the attributes. The addresses in
    // them are zero or those of slices that outlive the call, with the lengths beside them.
    #[expect(unsafe_code, reason = "no library that we use has this system call")]
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    match libc::c_int::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}
