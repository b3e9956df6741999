// NPY files: what NumPy writes is read, everything else is refused with a reason.
#include "cli/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

namespace keynest::cli {
namespace {

std::string file(int version, const std::string& header, const std::string& data) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(version);
  out += '\0';
  const std::size_t bytes = version == 1 ? 2 : 4;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(header.size() >> (8 * i) & 255);
  return out + header + data;
}

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

Result<FloatArray> read(const std::string& bytes) {
  std::istringstream in(bytes);
  return read_npy(in, "k.npy");
}

const std::string kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";

TEST(Npy, ReadsAllVersions) {
  for (int version : {1, 2, 3}) {
    const auto array = read(file(version, kHeader + "     \n", floats({1.5f, -2})));
    ASSERT_TRUE(array.ok()) << array.error().message;
    EXPECT_EQ(array->shape, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(array->data, (std::vector<float>{1.5f, -2}));
  }
}

TEST(Npy, ReadsOtherFloatTypes) {
  const double wide[] = {0.25, -3};
  const auto f8 = read(file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
                            {reinterpret_cast<const char*>(wide), sizeof wide}));
  ASSERT_TRUE(f8.ok());
  EXPECT_EQ(f8->data, (std::vector<float>{0.25f, -3}));
  const std::uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x3555};
  const auto f2 = read(file(1, "{\"shape\": (5,), 'fortran_order': False, 'descr': '<f2'}",
                            {reinterpret_cast<const char*>(half), sizeof half}));
  ASSERT_TRUE(f2.ok()) << f2.error().message;
  EXPECT_EQ(f2->data[0], 1.0f);
  EXPECT_EQ(f2->data[1], -2.0f);
  EXPECT_EQ(f2->data[2], std::ldexp(1.0f, -24));
  EXPECT_TRUE(std::isinf(f2->data[3]));
  EXPECT_NEAR(f2->data[4], 1.0f / 3, 1e-4);
}

TEST(Npy, ScalarsAndEmptyArraysAreFine) {
  EXPECT_EQ(
      read(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", floats({7})))->data.size(), 1u);
  EXPECT_EQ(read(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9), }", ""))->data.size(),
            0u);
}

TEST(Npy, RefusesWithAReason) {
  const auto with = [](const std::string& header) { return file(1, header, floats({1, 2})); };
  const struct {
    std::string bytes;
    const char* said;
  } cases[] = {
      {"", "no NPY file"},
      {"PK\x03\x04 a zip of arrays", "no NPY file"},
      {file(4, kHeader, ""), "version 4"},
      {std::string("\x93NUMPY\x01\x00\x76", 9), "ends inside its header"},
      {std::string("\x93NUMPY\x01\x00\x76\x00{'descr", 17), "ends inside its header"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "header of 4294967295 bytes"},
      {with("{'descr': '>f4', 'fortran_order': False, 'shape': (1, 2), }"), "type >f4; allowed: <f4"},
      {with("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"), "type <i4"},
      {with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }"), "Fortran order"},
      {with("{'descr': '<f4', 'fortran_order': False}"), "damaged header"},
      {with("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': 2}"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} import os"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), "damaged header"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
       "impossible shape"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"), "truncated"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"),
       "promises 12 bytes of numbers, 8 are there"},
      {with("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"), "bytes after the numbers"},
  };
  for (const auto& c : cases) {
    const auto array = read(c.bytes);
    ASSERT_FALSE(array.ok()) << c.said;
    EXPECT_EQ(array.error().code, ErrorCode::kInvalidFile);
    EXPECT_EQ(array.error().message.rfind("k.npy: ", 0), 0u);
    EXPECT_NE(array.error().message.find(c.said), std::string::npos)
        << array.error().message << "\nwithout " << c.said;
  }
}

TEST(Npy, EveryCutIsRefused) {
  const std::string whole = file(1, kHeader, floats({1, 2}));
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(read(whole.substr(0, length)).ok());
  EXPECT_TRUE(read(whole).ok());
}

TEST(Npy, FlippedBytesNeverCrash) {
  const std::string whole = file(1, kHeader, floats({1, 2}));
  std::mt19937 rng(5);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (std::uint32_t n = 1 + rng() % 4; n > 0; --n) bytes[rng() % bytes.size()] = static_cast<char>(rng());
    refused += !read(bytes).ok();
  }
  EXPECT_GT(refused, 10000);
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  const std::vector<std::int64_t> shape{2, 1, 3};
  const std::vector<float> data{1, 2, 3, 4, 5, 6.5f};
  const std::string bytes = npy_bytes(shape, std::span<const float>(data));
  EXPECT_EQ((bytes.size() - 24) % 64, 0u);  // the data starts at a multiple of 64, as NumPy writes it
  const auto array = read(bytes);
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_EQ(array->shape, shape);
  EXPECT_EQ(array->data, data);
}

TEST(Npy, MissingFilesAndFoldersAreErrors) {
  EXPECT_FALSE(read_npy_file("/no/such/file.npy").ok());
  EXPECT_FALSE(read_npy_file("/").ok());
}

}  // namespace
}  // namespace keynest::cli
