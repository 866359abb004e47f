/* SPDX-License-Identifier: BSD-3-Clause */
/* Made by tests/reference/make_library_digest.py; do not edit. */
#define REF_DIGEST_MLP    "628487e38607592f5e49a7fd8d9cc2fa1f4a108d90b48a7501336c3b5dbb0964"
#define REF_DIGEST_GRID   "18973364ff5c84b9d71190337d0f27a157ba91dacbf93354804386b0bdea4377"
#define REF_DIGEST_RBF    "e5f74b622b6ca501e54f2f3f6f16cb57366e70492e404179e09fb23448ac74ef"
#define REF_DIGEST_LINEAR "265aa1380f2ae30842f1b525c079283f6bf6b962dab6c48dc59c836b88b0db9a"
