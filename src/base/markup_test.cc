// SPDX-License-Identifier: Apache-2.0
#include "base/markup.h"

#include <gtest/gtest.h>

namespace onehop::markup {
namespace {

TEST(Markup, EscapesWhatHasAMeaningAndDropsWhatXmlForbids) {
  EXPECT_EQ(escape("a < b & \"c\" > d\x01\n\u00b5"), "a &lt; b &amp; &quot;c&quot; &gt; d\u00b5");
}

TEST(Markup, ElementsHaveTheirAttributesInOrder) {
  EXPECT_EQ(element("line", {{"x1", 2.0}, {"x2", 1.25}, {"rx", 3}, {"class", "a\"b"}}),
            R"(<line x1="2.0" x2="1.2" rx="3" class="a&quot;b"/>)");
  EXPECT_EQ(element("td", {}, "<b>1</b>"), "<td><b>1</b></td>");
  EXPECT_EQ(element("td", {{"class", "ok"}}, ""), R"(<td class="ok"></td>)");
}

}  // namespace
}  // namespace onehop::markup
