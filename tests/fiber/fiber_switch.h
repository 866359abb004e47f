/* SPDX-License-Identifier: BSD-3-Clause */
/** Switch between fibers of a thread, for checking builds.
 *
 *  On x86-64 a switch saves only the registers that a call must preserve.  On other processors, and
 *  for AddressSanitizer to follow the stacks, swapcontext() makes the switch.  It is slower: its
 *  system call for the signal mask takes longer than most work between two barriers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MILL_FIBER_UCONTEXT
#endif
#endif
#if !defined(__x86_64__) || !defined(__LP64__) || defined(__SANITIZE_ADDRESS__)
#define MILL_FIBER_UCONTEXT
#endif

#ifndef MILL_FIBER_UCONTEXT

/** Saved context of a fiber. */
typedef struct mill_fiber_place {
  void **stack;
} mill_fiber_place;

/** Prepare a fiber that begins with entry, which must not return. */
static inline void mill_fiber_make(mill_fiber_place *fiber, void *stack, size_t bytes,
                                   void (*entry)(void))
{
  enum { N_REGISTER = 6 };
  void **at = (void **)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
  *--at = NULL; /* where entry would return to */
  *--at = (void *)entry;
  for (int i = 0; i < N_REGISTER; i++)
    *--at = NULL;
  fiber->stack = at;
}

/** Suspend the running fiber in *from and resume *to; returns when a switch resumes *from. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static void
mill_fiber_switch(__attribute__((unused)) mill_fiber_place *from,
                  __attribute__((unused)) const mill_fiber_place *to)
/* clang-format on */
{
  __asm__("pushq %rbp\n\t"
          "pushq %rbx\n\t"
          "pushq %r12\n\t"
          "pushq %r13\n\t"
          "pushq %r14\n\t"
          "pushq %r15\n\t"
          "movq %rsp, (%rdi)\n\t"
          "movq (%rsi), %rsp\n\t"
          "popq %r15\n\t"
          "popq %r14\n\t"
          "popq %r13\n\t"
          "popq %r12\n\t"
          "popq %rbx\n\t"
          "popq %rbp\n\t"
          "popq %rcx\n\t" /* jump, since a ret must match the last call */
          "jmp *%rcx");
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

typedef struct mill_fiber_place {
  ucontext_t context;
} mill_fiber_place;

static inline void mill_fiber_make(mill_fiber_place *fiber, void *stack, size_t bytes,
                                   void (*entry)(void))
{
  if (getcontext(&fiber->context) != 0) {
    fprintf(stderr, "fiber: no context\n");
    abort();
  }
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = bytes;
  fiber->context.uc_link = NULL;
  makecontext(&fiber->context, entry, 0);
}

static inline void mill_fiber_switch(mill_fiber_place *from, const mill_fiber_place *to)
{
  swapcontext(&from->context, &to->context);
}

#endif
