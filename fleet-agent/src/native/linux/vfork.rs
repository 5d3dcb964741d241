//! Clones this process into a child that shares its memory until the exec.
//!
//! An ordinary fork copies the memory mappings of the process. The copy costs more the more memory
//! the daemon uses, and the exec discards it at once. So the child here shares the daemon's memory
//! and gets only a stack of its own. The kernel suspends the calling thread until the exec. A
//! supervisor of 27 MB then starts a thousand oneshots in 2 seconds instead of 4.
//!
//! `vfork` works in the same way, and `posix_spawn` is built on it. But no library can also put
//! such a child into a control group. The method requires assembly code, which exists here only for
//! x86-64. Other architectures use a copy.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::c_void;

/// Size of the child's stack in bytes. The code before the exec needs only a fraction of it.
const STACK: usize = 64 * 1024;

/// Flags in addition to those for a copy: `CLONE_VM` and `CLONE_VFORK`.
pub(crate) const FLAGS: u64 = 0x100 | 0x4000;

/// Whether this architecture is supported.
pub(crate) const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Entry point of the child, with its argument.
pub(crate) type ChildMain = unsafe extern "C" fn(*const c_void) -> !;

/// Allocates a stack; its [`stack_range`] goes into the arguments.
pub(crate) fn stack() -> Vec<u8> {
    Vec::with_capacity(STACK)
}

/// Returns the lowest address of a stack, and its usable size. The size is chosen so that the top
/// of the stack is aligned to 16 bytes, as the ABI requires.
pub(crate) fn stack_range(stack: &mut Vec<u8>) -> (u64, u64) {
    let (lowest, size) = (stack.as_mut_ptr() as u64, stack.capacity() as u64);
    (lowest, size - (lowest + size) % 16)
}

/// Calls `clone3` and runs `main` with `argument` in the child. Returns the child's pid, or a
/// negated error number.
///
/// # Safety
///
/// - `request` points to valid arguments for `clone3` of this size. They contain [`FLAGS`], and a
///   stack with its [`stack_range`].
/// - `main` only makes system calls, and ends with an exec or an exit.
/// - Everything that `main` uses stays valid and unchanged until this function returns.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no library begins a process so inside a control group")]
pub(crate) unsafe fn clone3(
    request: *const c_void,
    size: usize,
    main: ChildMain,
    argument: *const c_void,
) -> isize {
    let answer: isize;
    // SAFETY: as required above. In the child, where the result is 0, the stack is a different one.
    // So it uses nothing of this function but the two registers, and never returns. Its stack is
    // empty and aligned to 16 bytes, as a call requires.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") nix::libc::SYS_clone3 as isize => answer,
            in("rdi") request,
            in("rsi") size,
            in("r12") main,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// Fails with `ENOSYS`, because this architecture is not supported.
///
/// # Safety
///
/// There are no requirements, because the function does nothing.
#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "it is unsafe elsewhere")]
pub(crate) unsafe fn clone3(_: *const c_void, _: usize, _: ChildMain, _: *const c_void) -> isize {
    -(nix::libc::ENOSYS as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_top_is_aligned() {
        for odd in 0..32 {
            let mut stack = Vec::with_capacity(STACK + odd);
            let (lowest, size) = stack_range(&mut stack);
            assert_eq!((lowest, (lowest + size) % 16), (stack.as_ptr() as u64, 0));
            let bytes = stack.capacity() as u64;
            assert!((bytes - 15..=bytes).contains(&size), "{size} of {bytes}");
        }
    }
}
