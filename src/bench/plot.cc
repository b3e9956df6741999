#include "bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/markdown.h"
#include "bench/runs.h"

namespace keynest::bench {
namespace {

constexpr double kPanelWidth = 360, kPanelHeight = 260, kLeft = 56, kTop = 40, kBetween = 70,
                 kLegendLine = 18;
// Told apart by eyes of all kinds, on white and on black.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                    "#d55e00", "#56b4e9", "#999933"};

struct Point {
  double x, y;
};
struct Line {
  std::string name;
  std::vector<Point> points;
};
struct Panel {
  std::string title;
  std::vector<Line> lines;
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string stroke(const Point& from, const Point& to, const char* kind) {
  return "<line x1=\"" + number(from.x) + "\" y1=\"" + number(from.y) + "\" x2=\"" + number(to.x) +
         "\" y2=\"" + number(to.y) + "\" class=\"" + kind + "\"/>\n";
}

/// 1, 2 or 5 times a power of ten, so that at most six steps reach `most`.
double step_to(double most) {
  const double power = std::pow(10, std::floor(std::log10(std::max(most, 1e-9) / 6)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor * 6 >= most) return power * factor;
  }
  return power * 10;
}

std::vector<Line> lines_of(const Runs& runs, const char* field, double factor) {
  std::vector<Line> lines;
  for (const std::string& name : runs.texts("name")) {
    Line line{name, {}};
    for (const double length : runs.numbers("length")) {
      const auto values = runs.where("name", name).where("length", length).values(field);
      if (!values.empty()) line.points.push_back({length, factor * median(values)});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// The largest coordinates of all points, y up to a whole step.
Point extent(const Panel& panel) {
  Point most{1, 0};
  for (const Line& line : panel.lines) {
    for (const Point& point : line.points) most = {std::max(most.x, point.x), std::max(most.y, point.y)};
  }
  const double step = step_to(most.y);
  return {most.x, std::max(step, std::ceil(most.y / step) * step)};
}

/// Both axes linear from 0, so that time in proportion to length is a straight line.
std::string draw(const Panel& panel, double left) {
  const Point most = extent(panel);
  const auto place = [&](const Point& point) {
    return Point{left + kPanelWidth * point.x / most.x, kTop + kPanelHeight * (1 - point.y / most.y)};
  };
  std::string svg = label(left, kTop - 16, "start", panel.title);
  for (double y = 0; y <= most.y * 1.001; y += step_to(most.y)) {
    svg += stroke(place({0, y}), place({most.x, y}), "grid") +
           label(left - 6, place({0, y}).y + 4, "end", number(y));
  }
  for (double x = 0; x <= most.x * 1.001; x += step_to(most.x / 1024) * 1024) {
    svg += label(place({x, 0}).x, kTop + kPanelHeight + 18, "middle", number(x / 1024) + (x > 0 ? "k" : ""));
  }
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    const std::string colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const Point& point : panel.lines[i].points) {
      const Point at = place(point);
      points += number(at.x) + "," + number(at.y) + " ";
      svg += "<circle cx=\"" + number(at.x) + "\" cy=\"" + number(at.y) + "\" r=\"3\" fill=\"" + colour +
             "\"/>\n";
    }
    svg +=
        "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"/>\n";
  }
  return svg + label(left + kPanelWidth / 2, kTop + kPanelHeight + 38, "middle", "prompt tokens");
}

std::string legend(const std::vector<Line>& lines, double top) {
  std::string svg;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double y = top + kLegendLine * static_cast<double>(i);
    svg += "<rect x=\"" + number(kLeft) + "\" y=\"" + number(y - 9) +
           "\" width=\"14\" height=\"10\" fill=\"" + kColours[i % std::size(kColours)] + "\"/>\n" +
           label(kLeft + 22, y, "start", lines[i].name);
  }
  return svg;
}

}  // namespace

Result<std::string> plot_compare(const Json& results) {
  const Runs runs = Runs(results).where("part", "compare");
  if (runs.values("ttft_seconds").empty()) {
    return invalid_argument(
        "there are no runs of `keynest bench compare` in it, which the picture is made of");
  }
  const Panel panels[] = {
      {"Time to first token, s", lines_of(runs, "ttft_seconds", 1)},
      {"Peak resident memory, MiB", lines_of(runs, "peak_resident_bytes", 1.0 / (1 << 20))}};
  const double width = kLeft + 2 * kPanelWidth + kBetween + 20, top = kTop + kPanelHeight + 70;
  const double height = top + kLegendLine * static_cast<double>(panels[0].lines.size());
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" +
                    number(height) + "\" viewBox=\"0 0 " + number(width) + " " + number(height) + "\">\n" +
                    "<style>text{font:13px sans-serif;fill:#444}.grid{stroke:#ccc}</style>\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  svg += draw(panels[0], kLeft) + draw(panels[1], kLeft + kPanelWidth + kBetween);
  return svg + legend(panels[0].lines, top) + "</svg>\n";
}

}  // namespace keynest::bench
