/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's functions: each is a jump through its slot, so that arguments of any signature pass untouched. A slot first holds
 * onehop_nccl_first_call, which finds the function (onehop_nccl_resolve in forward.cc) and then goes on to it. */

    .text
    .hidden onehop_nccl_slots
    .hidden onehop_nccl_resolve
    .set index, 0

#if defined(__x86_64__)

/* The index travels in r11, which no argument uses and every call may change. */
.macro trampoline name
    .p2align 4
    .globl \name
    .globl p\name
    .type \name, @function
    .type p\name, @function
\name:
p\name:
    .cfi_startproc
    endbr64
    movl $index, %r11d
    jmpq *(onehop_nccl_slots + 8 * index)(%rip)
    .cfi_endproc
    .size \name, . - \name
    .size p\name, . - p\name
    .set index, index + 1
.endm

    .p2align 4
    .globl onehop_nccl_first_call
    .hidden onehop_nccl_first_call
    .type onehop_nccl_first_call, @function
onehop_nccl_first_call:
    .cfi_startproc
    endbr64
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $192, %rsp
    movups %xmm0, 0(%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    movq %rdi, 128(%rsp)
    movq %rsi, 136(%rsp)
    movq %rdx, 144(%rsp)
    movq %rcx, 152(%rsp)
    movq %r8, 160(%rsp)
    movq %r9, 168(%rsp)
    movq %rax, 176(%rsp)  /* al: the number of vector registers of a variadic call */
    movq %r11, 184(%rsp)
    movl %r11d, %edi
    callq onehop_nccl_resolve
    movq %rax, %r10
    movups 0(%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    movq 128(%rsp), %rdi
    movq 136(%rsp), %rsi
    movq 144(%rsp), %rdx
    movq 152(%rsp), %rcx
    movq 160(%rsp), %r8
    movq 168(%rsp), %r9
    movq 176(%rsp), %rax
    movq 184(%rsp), %r11
    leave
    .cfi_def_cfa %rsp, 8
    jmpq *%r10
    .cfi_endproc
    .size onehop_nccl_first_call, . - onehop_nccl_first_call

/* In place of a function that is missing: onehop_nccl_refuse gets its index, and answers its caller. */
    .p2align 4
    .globl onehop_nccl_missing
    .hidden onehop_nccl_missing
    .hidden onehop_nccl_refuse
    .type onehop_nccl_missing, @function
onehop_nccl_missing:
    .cfi_startproc
    endbr64
    movl %r11d, %edi
    jmp onehop_nccl_refuse
    .cfi_endproc
    .size onehop_nccl_missing, . - onehop_nccl_missing

#elif defined(__aarch64__)

/* The index travels in x16, which no argument uses and every call may change. */
.macro trampoline name
    .p2align 4
    .globl \name
    .globl p\name
    .type \name, %function
    .type p\name, %function
\name:
p\name:
    .cfi_startproc
    hint #34  /* bti c */
    adrp x17, onehop_nccl_slots + 8 * index
    ldr x17, [x17, #:lo12:onehop_nccl_slots + 8 * index]
    mov w16, #index
    br x17
    .cfi_endproc
    .size \name, . - \name
    .size p\name, . - p\name
    .set index, index + 1
.endm

    .p2align 4
    .globl onehop_nccl_first_call
    .hidden onehop_nccl_first_call
    .type onehop_nccl_first_call, %function
onehop_nccl_first_call:
    .cfi_startproc
    hint #36  /* bti j */
    stp x29, x30, [sp, #-240]!
    .cfi_def_cfa_offset 240
    .cfi_offset x29, -240
    .cfi_offset x30, -232
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x16, [sp, #80]  /* x8: where a large result goes */
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w16
    bl onehop_nccl_resolve
    mov x17, x0
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x16, [sp, #80]
    ldp x29, x30, [sp], #240
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x17
    .cfi_endproc
    .size onehop_nccl_first_call, . - onehop_nccl_first_call

/* In place of a function that is missing: onehop_nccl_refuse gets its index, and answers its caller. */
    .p2align 4
    .globl onehop_nccl_missing
    .hidden onehop_nccl_missing
    .hidden onehop_nccl_refuse
    .type onehop_nccl_missing, %function
onehop_nccl_missing:
    .cfi_startproc
    hint #36  /* bti j */
    mov w0, w16
    b onehop_nccl_refuse
    .cfi_endproc
    .size onehop_nccl_missing, . - onehop_nccl_missing

#else
#error "libonehop_nccl has trampolines for x86-64 and aarch64 only: configure with -DONEHOP_BUILD_NCCL=OFF"
#endif

#define ONEHOP_NCCL_FUNCTION(name, returns) trampoline name
#include "functions.inc"

    .section .note.GNU-stack, "", %progbits
